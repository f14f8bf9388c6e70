// SPDX-License-Identifier: Apache-2.0
// The unit that the engine copies: a range of device memory with an identity that both sides share. All types
// are value types.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>

#include "libckpt/cuda/driver.h"

namespace ckpt::engine {

// A region to transfer. Ids and generations are the source's, and never 0. A region that is freed and made
// again gets a higher generation.
struct TransferRegion {
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  CUdeviceptr address = 0;  // the address in this process, 16-byte aligned
  std::uint64_t bytes = 0;
  // An object that keeps the mapping alive. The engine releases it when the region is dropped, and that
  // unmaps the region (ENG-7).
  std::shared_ptr<const void> backing;
};

struct ChunkId {
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
  std::uint32_t chunk = 0;
  friend auto operator<=>(const ChunkId&, const ChunkId&) = default;
};

[[nodiscard]] constexpr std::uint32_t chunk_count(std::uint64_t bytes, std::uint64_t chunk_bytes) {
  return static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
}
[[nodiscard]] constexpr std::uint64_t chunk_length(std::uint64_t bytes, std::uint64_t chunk_bytes,
                                                   std::uint32_t chunk) {
  const std::uint64_t start = chunk * chunk_bytes;
  return bytes - start < chunk_bytes ? bytes - start : chunk_bytes;
}
[[nodiscard]] constexpr bool is_chunk_size(std::uint64_t bytes) {
  return bytes >= (std::uint64_t{64} << 10) && bytes <= (std::uint64_t{2} << 20) &&
         (bytes & (bytes - 1)) == 0;
}

}  // namespace ckpt::engine
