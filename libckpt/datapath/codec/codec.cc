// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/codec.h"

#include <immintrin.h>

#include <cstring>
#include <string>

namespace ckpt::codec {
namespace {

bool is_zero_scalar(const std::byte* data, std::size_t bytes) noexcept {
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, data + at, sizeof word);
    if (word != 0) return false;
  }
  for (; at < bytes; ++at) {
    if (data[at] != std::byte{0}) return false;
  }
  return true;
}

[[gnu::target("avx2")]] bool is_zero_avx2(const std::byte* data, std::size_t bytes) noexcept {
  std::size_t at = 0;
  for (; at + 128 <= bytes; at += 128) {
    const auto* v = reinterpret_cast<const __m256i*>(data + at);
    const __m256i any =
        _mm256_or_si256(_mm256_or_si256(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)),
                        _mm256_or_si256(_mm256_loadu_si256(v + 2), _mm256_loadu_si256(v + 3)));
    if (!_mm256_testz_si256(any, any)) return false;
  }
  return is_zero_scalar(data + at, bytes - at);
}

Error wrong_length(Encoding encoding, std::size_t in, std::size_t out) {
  return Error(ErrorCode::kCorrupt, "A chunk of " + std::to_string(out) + " bytes cannot be decoded from " +
                                        std::to_string(in) + " bytes in encoding " +
                                        std::string(to_string(encoding)));
}

class ZeroCodec final : public Codec {
 public:
  [[nodiscard]] Encoding encoding() const noexcept override { return Encoding::kZero; }
  [[nodiscard]] std::size_t bound(std::size_t) const noexcept override { return 0; }
  [[nodiscard]] std::optional<std::size_t> encode(std::span<const std::byte> in,
                                                  std::span<std::byte>) const override {
    if (!is_zero(in)) return std::nullopt;
    return 0;
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) const override {
    if (!in.empty()) return wrong_length(encoding(), in.size(), out.size());
    if (!out.empty()) std::memset(out.data(), 0, out.size());
    return ok();
  }
};

class RawCodec final : public Codec {
 public:
  [[nodiscard]] Encoding encoding() const noexcept override { return Encoding::kRaw; }
  [[nodiscard]] std::size_t bound(std::size_t bytes) const noexcept override { return bytes; }
  [[nodiscard]] std::optional<std::size_t> encode(std::span<const std::byte> in,
                                                  std::span<std::byte> out) const override {
    if (out.size() < in.size()) return std::nullopt;
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return in.size();
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) const override {
    if (in.size() != out.size()) return wrong_length(encoding(), in.size(), out.size());
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return ok();
  }
};

}  // namespace

std::string_view to_string(Encoding encoding) noexcept {
  switch (encoding) {
    case Encoding::kInvalid:
      return "invalid";
    case Encoding::kZero:
      return "zero";
    case Encoding::kRaw:
      return "raw";
    case Encoding::kPlanes2:
      return "planes2";
    case Encoding::kPlanes4:
      return "planes4";
    case Encoding::kDifference2:
      return "difference2";
    case Encoding::kDifference4:
      return "difference4";
    case Encoding::kBlocks:
      return "blocks";
  }
  return "unknown";
}

const Codec* find_codec(Encoding encoding) noexcept {
  static const ZeroCodec zero;
  static const RawCodec raw;
  switch (encoding) {
    case Encoding::kZero:
      return &zero;
    case Encoding::kRaw:
      return &raw;
    default:
      break;
  }
  return nullptr;
}

bool is_zero(std::span<const std::byte> bytes) noexcept {
  static const auto function = __builtin_cpu_supports("avx2") ? &is_zero_avx2 : &is_zero_scalar;
  return function(bytes.data(), bytes.size());
}

}  // namespace ckpt::codec
