// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/gpu.h"

#include <array>

#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/scanner.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kMaxStagingBytes = std::uint64_t{256} << 20;

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::create(const wire::mover::Configure& configure) {
  if (configure.staging_bytes > kMaxStagingBytes)
    return Error(ErrorCode::kInvalidArgument, "Staging memory of " + std::to_string(configure.staging_bytes) +
                                                  " bytes: at most " + std::to_string(kMaxStagingBytes));
  const std::uint64_t chunk_bytes =
      configure.chunk_bytes == 0 ? engine::kDefaultChunkBytes : configure.chunk_bytes;
  if (!engine::is_chunk_size(chunk_bytes))
    return Error(ErrorCode::kInvalidArgument, "Chunks of " + std::to_string(chunk_bytes) +
                                                  " bytes: a power of two from 64 KiB to 2 MiB is possible");
  CKPT_TRY(device, Device::open(static_cast<int>(configure.gpu)));
  auto gpu = std::make_unique<Gpu>(std::move(device));
  gpu->chunk_bytes = chunk_bytes;
  CKPT_TRY(staging, engine::StagingPool::create(gpu->device, configure.staging_bytes));
  gpu->staging = std::move(staging);
  transport::UcxOptions options;
  options.ip = configure.listen_ip;
  options.net_device = configure.net_device;
  options.tls = configure.transports;
  CKPT_TRY(transport, transport::make_ucx_transport(options));
  gpu->transport = std::move(transport);
  return gpu;
}

Result<wire::mover::MoverReady> Gpu::describe() const {
  const ContextScope scope(device);
  std::array<char, 256> name{};
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CKPT_CUDA_TRY(device.api(),
                cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device.device()));
  CKPT_CUDA_TRY(device.api(), cuMemGetInfo_v2(&free_bytes, &total_bytes));
  wire::mover::MoverReady ready;
  ready.device_name = name.data();
  ready.memory_bytes = total_bytes;
  ready.free_bytes = free_bytes;
  return ready;
}

}  // namespace ckpt::mover
