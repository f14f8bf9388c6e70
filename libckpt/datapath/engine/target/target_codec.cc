// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/target_codec.h"

namespace ckpt::engine {

Result<std::unique_ptr<Decoder>> Decoder::create(const Device& device, StagingPool& staging) {
  CKPT_TRY(slots, staging.acquire(1));
  std::unique_ptr<Decoder> decoder(new Decoder(device, std::move(slots.front())));
  CKPT_TRY(coder, codec::Coder::create(kSlotBytes));
  decoder->coder_ = std::move(coder);
  const ContextScope scope(device);
  CKPT_CUDA_TRY(device.api(), cuStreamCreate(&decoder->stream_, CU_STREAM_NON_BLOCKING));
  return decoder;
}

Decoder::~Decoder() {
  if (stream_ == nullptr) return;
  const ContextScope scope(device_);
  device_.api().cuStreamSynchronize(stream_);
  device_.api().cuStreamDestroy_v2(stream_);
}

Result<void> Decoder::begin(std::span<const ReceiverCore::Placed> places) {
  const DriverApi& api = device_.api();
  at_ = 0;
  std::size_t at = 0;
  bool any = false;
  for (const ReceiverCore::Placed& placed : places) {
    if (!placed.region || !needs_decoder(placed.encoding)) continue;
    if (codec::needs_previous(placed.encoding)) {
      CKPT_CUDA_TRY(
          api, cuMemcpyDtoHAsync_v2(chunks_.memory().data() + at, placed.address, placed.bytes, stream_));
      any = true;
    }
    at += placed.bytes;
  }
  if (any) CKPT_CUDA_TRY(api, cuStreamSynchronize(stream_));
  return ok();
}

std::span<const std::byte> Decoder::decode(const ReceiverCore::Placed& placed,
                                           std::span<const std::byte> encoded) {
  const std::span<std::byte> chunk = chunks_.memory().subspan(at_, placed.bytes);
  at_ += placed.bytes;
  const std::span<const std::byte> previous = codec::needs_previous(placed.encoding)
                                                  ? std::span<const std::byte>(chunk)
                                                  : std::span<const std::byte>{};
  if (!coder_->decode(placed.encoding, encoded, previous, chunk)) return {};
  return chunk;
}

}  // namespace ckpt::engine
