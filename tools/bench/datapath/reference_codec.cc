// SPDX-License-Identifier: Apache-2.0
#define ZSTD_STATIC_LINKING_ONLY  // needed to force Huffman, which is experimental
#include "tools/bench/datapath/reference_codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "libckpt/datapath/codec/planes.h"

namespace ckpt::bench {
namespace {

constexpr double kMaxPackedBits = 7.7;
constexpr int kAcceleration = 100;
constexpr std::size_t kSamples = 4096;
// The flag in a plane's length that marks a plane stored without coding, in contrast to a zstd frame.
constexpr std::uint32_t kStored = 1U << 31;

Error refused(std::string_view what, std::size_t code) {
  return Error(ErrorCode::kInternal,
               "zstd refused " + std::string(what) + ": " + std::string(ZSTD_getErrorName(code)));
}

double sampled_entropy(std::span<const std::byte> plane) {
  std::array<std::uint32_t, 256> counts{};
  const std::size_t samples = std::min(plane.size(), kSamples);
  for (std::size_t i = 0; i < samples; ++i)
    ++counts[std::to_integer<std::size_t>(plane[i * plane.size() / samples])];
  double bits = 0;
  for (const std::uint32_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(samples);
    bits -= share * std::log2(share);
  }
  return bits;
}

}  // namespace

Result<std::unique_ptr<ReferenceCodec>> ReferenceCodec::create(std::size_t width, bool difference) {
  std::unique_ptr<ReferenceCodec> codec(new ReferenceCodec(width, difference));
  codec->pack_ = ZSTD_createCCtx();
  codec->unpack_ = ZSTD_createDCtx();
  if (codec->pack_ == nullptr || codec->unpack_ == nullptr)
    return Error(ErrorCode::kOutOfMemory, "Cannot allocate memory for zstd's contexts");
  const std::size_t level = ZSTD_CCtx_setParameter(codec->pack_, ZSTD_c_compressionLevel, -kAcceleration);
  if (ZSTD_isError(level) != 0) return refused("the level", level);
  const std::size_t literals =
      ZSTD_CCtx_setParameter(codec->pack_, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
  if (ZSTD_isError(literals) != 0) return refused("Huffman for all literals", literals);
  return codec;
}

ReferenceCodec::~ReferenceCodec() {
  ZSTD_freeCCtx(pack_);
  ZSTD_freeDCtx(unpack_);
}

std::size_t ReferenceCodec::bound(std::size_t bytes) noexcept {
  return ZSTD_compressBound(bytes) + codec::kMaxPlanes * (sizeof(std::uint32_t) + ZSTD_compressBound(0));
}

Result<std::size_t> ReferenceCodec::encode(std::span<const std::byte> chunk,
                                           std::span<const std::byte> previous, std::span<std::byte> out) {
  const std::size_t elements = chunk.size() / width_;
  if (planes_.size() < chunk.size()) planes_.resize(chunk.size());
  codec::PlanesOut planes{};
  for (std::size_t p = 0; p < width_; ++p) planes[p] = planes_.data() + p * elements;
  const codec::PlaneKernels& kernels = codec::plane_kernels();
  (width_ == 2 ? kernels.split2 : kernels.split4)(chunk.data(), difference_ ? previous.data() : nullptr,
                                                  elements, planes);
  std::size_t used = width_ * sizeof(std::uint32_t);
  for (std::size_t p = 0; p < width_; ++p) {
    const std::span<const std::byte> plane(planes[p], elements);
    auto length = static_cast<std::uint32_t>(elements) | kStored;
    if (sampled_entropy(plane) > kMaxPackedBits) {
      std::memcpy(out.data() + used, plane.data(), elements);
    } else {
      const std::size_t size =
          ZSTD_compress2(pack_, out.data() + used, out.size() - used, plane.data(), elements);
      if (ZSTD_isError(size) != 0) return refused("a plane", size);
      length = static_cast<std::uint32_t>(size);
    }
    std::memcpy(out.data() + p * sizeof length, &length, sizeof length);
    used += length & ~kStored;
  }
  return used;
}

Result<void> ReferenceCodec::decode(std::span<const std::byte> wire, std::span<const std::byte> previous,
                                    std::span<std::byte> out) {
  const std::size_t elements = out.size() / width_;
  if (planes_.size() < out.size()) planes_.resize(out.size());
  codec::PlanesIn planes{};
  std::size_t used = width_ * sizeof(std::uint32_t);
  for (std::size_t p = 0; p < width_; ++p) {
    std::uint32_t length = 0;
    std::memcpy(&length, wire.data() + p * sizeof length, sizeof length);
    const std::span<const std::byte> packed = wire.subspan(used, length & ~kStored);
    used += packed.size();
    planes[p] = packed.data();
    if ((length & kStored) != 0) continue;
    std::byte* const plane = planes_.data() + p * elements;
    const std::size_t size = ZSTD_decompressDCtx(unpack_, plane, elements, packed.data(), packed.size());
    if (ZSTD_isError(size) != 0) return refused("a frame of its own", size);
    planes[p] = plane;
  }
  const codec::PlaneKernels& kernels = codec::plane_kernels();
  (width_ == 2 ? kernels.merge2 : kernels.merge4)(planes, difference_ ? previous.data() : nullptr, elements,
                                                  out.data());
  return ok();
}

}  // namespace ckpt::bench
