// SPDX-License-Identifier: Apache-2.0
// The interface of kernels.cu to its launcher: list entries in device memory and launch shapes.
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

// A chunk of 64 KiB gives each of a block's four warps one group of fingerprint blocks. More than so many
// thread blocks of a processor do not run at once, so that no more are launched, and each takes a run of
// chunks with the key in its shared memory.
inline constexpr std::uint32_t kFingerprintThreads = 128;
// With a sixth one the registers (80 a thread) would not suffice.
inline constexpr std::uint32_t kFingerprintBlocksPerProcessor = 5;
inline constexpr std::uint32_t kReadThreads = 256;
inline constexpr std::uint32_t kCopyThreads = 256;
inline constexpr std::uint32_t kCopyParts = 4;

}  // namespace ckpt::track
