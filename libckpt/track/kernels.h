// SPDX-License-Identifier: Apache-2.0
// What kernels.cu and its launcher agree on: list entries in device memory and launch shapes.
#pragma once

#include <cstdint>

namespace ckpt::track {

struct DeviceChunk {
  std::uint64_t address;  // 16-byte aligned
  std::uint64_t bytes;    // 1..kMaxChunkBytes
};
static_assert(sizeof(DeviceChunk) == 16);

struct DeviceCopy {
  std::uint64_t target;  // 16-byte aligned, as is source
  std::uint64_t source;  // 0: write zeroes
  std::uint64_t bytes;
};
static_assert(sizeof(DeviceCopy) == 24);

inline constexpr std::uint32_t kFingerprintThreads = 256;
inline constexpr std::uint32_t kReadThreads = 256;
inline constexpr std::uint32_t kCopyThreads = 256;
inline constexpr std::uint32_t kCopyParts = 4;

}  // namespace ckpt::track
