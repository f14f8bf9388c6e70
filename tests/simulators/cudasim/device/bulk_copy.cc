// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/bulk_copy.h"

#include <emmintrin.h>

#include <cstring>

namespace cudasim {
namespace {

// Only longer copies bypass the caches, because programs often read shorter copies (a chunk, a row)
// immediately after the copy.
constexpr std::uint64_t kMinBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kLine = 64;

void move(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

// Copies whole lines that begin at a line boundary, and bypasses the caches. No thread sees a later store of
// this thread before these stores.
void stream_lines(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kVector = sizeof(__m128i);
  for (std::uint64_t at = 0; at < bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    __m128i line[kLine / kVector];
    for (std::uint64_t i = 0; i < kLine / kVector; ++i) line[i] = _mm_loadu_si128(source + i);
    for (std::uint64_t i = 0; i < kLine / kVector; ++i) _mm_stream_si128(target + i, line[i]);
  }
  _mm_sfence();
}

}  // namespace

void bulk_copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept {
  const bool overlap = to < from + bytes && from < to + bytes;
  if (bytes < kMinBytes || overlap) {
    move(to, from, bytes);
    return;
  }
  const std::uint64_t head = -to % kLine;
  const std::uint64_t lines = (bytes - head) / kLine * kLine;
  move(to, from, head);
  stream_lines(to + head, from + head, lines);
  move(to + head + lines, from + head + lines, bytes - head - lines);
}

}  // namespace cudasim
