// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/sparse_plane.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace ckpt::codec {
namespace {

constexpr std::size_t kSkip = 255;
constexpr std::size_t kShare = 64;
constexpr std::size_t kAlways = 16;

// Returns the value that at least two of three places of the plane have. If all three differ, returns any of
// them: the plane is then hardly sparse.
std::byte likely_value(std::span<const std::byte> plane) noexcept {
  const std::byte first = plane.front(), last = plane.back();
  return first == last ? first : plane[plane.size() / 2];
}

// Returns the position of the next byte that is not `value`, from `at` on. Returns the end if there is none.
std::size_t find_other(std::span<const std::byte> plane, std::size_t at, std::byte value) noexcept {
  const std::uint64_t all = 0x0101010101010101 * std::to_integer<std::uint64_t>(value);
  for (; at + 8 <= plane.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, plane.data() + at, 8);
    if (word != all) return at + static_cast<std::size_t>(std::countr_zero(word ^ all)) / 8;
  }
  while (at < plane.size() && plane[at] == value) ++at;
  return at;
}

// Returns a lower bound for the number of bytes from `at` on that are `value`: whole steps, which are found
// fast.
[[gnu::target("avx2")]] std::size_t skip_avx2(std::span<const std::byte> plane, std::size_t at,
                                              std::byte value) noexcept {
  constexpr std::size_t kStep = 128;
  const __m256i all = _mm256_set1_epi8(static_cast<char>(value));
  std::size_t end = at;
  for (; end + kStep <= plane.size(); end += kStep) {
    const auto* some = reinterpret_cast<const __m256i*>(plane.data() + end);
    const __m256i first = _mm256_or_si256(_mm256_xor_si256(_mm256_loadu_si256(some), all),
                                          _mm256_xor_si256(_mm256_loadu_si256(some + 1), all));
    const __m256i second = _mm256_or_si256(_mm256_xor_si256(_mm256_loadu_si256(some + 2), all),
                                           _mm256_xor_si256(_mm256_loadu_si256(some + 3), all));
    const __m256i others = _mm256_or_si256(first, second);
    if (_mm256_testz_si256(others, others) == 0) break;
  }
  return end - at;
}
std::size_t skip_none(std::span<const std::byte> /*plane*/, std::size_t /*at*/,
                      std::byte /*value*/) noexcept {
  return 0;
}

}  // namespace

std::optional<std::size_t> pack_sparse(std::span<const std::byte> plane, std::span<std::byte> out) noexcept {
  if (plane.empty()) return std::nullopt;
  const std::size_t limit = std::min(out.size(), plane.size() / kShare + kAlways);
  if (limit == 0) return std::nullopt;
  static const auto skip = __builtin_cpu_supports("avx2") ? skip_avx2 : skip_none;
  const std::byte value = likely_value(plane);
  out[0] = value;
  std::size_t used = 1;
  std::size_t done = 0;  // the processed bytes of the plane
  for (;;) {
    const std::size_t other = find_other(plane, done + skip(plane, done, value), value);
    if (other == plane.size()) return used;
    const std::size_t skips = (other - done) / kSkip;
    if (limit - used < skips + 2) return std::nullopt;
    std::memset(out.data() + used, kSkip, skips);
    used += skips;
    out[used++] = static_cast<std::byte>((other - done) % kSkip);
    out[used++] = plane[other];
    done = other + 1;
  }
}

bool unpack_sparse(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept {
  if (packed.empty() || plane.empty()) return false;
  std::memset(plane.data(), std::to_integer<int>(packed.front()), plane.size());
  std::size_t at = 0;  // the position in the plane
  for (std::size_t i = 1; i < packed.size(); ++i) {
    const auto distance = std::to_integer<std::size_t>(packed[i]);
    at += distance;
    if (distance == kSkip) continue;
    if (at >= plane.size() || ++i == packed.size()) return false;
    plane[at++] = packed[i];
  }
  return at <= plane.size();
}

}  // namespace ckpt::codec
