// SPDX-License-Identifier: Apache-2.0
// The interface of kernels.cu to its launcher: list entries in device memory and launch shapes.
#pragma once

#include <cstdint>

namespace ckpt::track {

struct DeviceChunk {
  std::uint64_t address;  // the address of the chunk, 16-byte aligned
  std::uint64_t bytes;    // the length of the chunk, between 1 and kMaxChunkBytes
};
static_assert(sizeof(DeviceChunk) == 16);

struct DeviceCopy {
  std::uint64_t target;  // the address to write, 16-byte aligned
  std::uint64_t source;  // the address to read, 16-byte aligned; 0 writes zeros
  std::uint64_t bytes;
};
static_assert(sizeof(DeviceCopy) == 24);

// The launch shape of fingerprints. A chunk of 64 KiB gives each of a block's four warps one group of
// fingerprint blocks. No more thread blocks per processor than the limit run at the same time. More are
// therefore not launched, and each takes a run of chunks, with the key in its shared memory.
inline constexpr std::uint32_t kFingerprintThreads = 128;
// The limit per processor. With a sixth block the registers (80 per thread) would not suffice.
inline constexpr std::uint32_t kFingerprintBlocksPerProcessor = 5;
inline constexpr std::uint32_t kReadThreads = 256;
inline constexpr std::uint32_t kCopyThreads = 256;
inline constexpr std::uint32_t kCopyParts = 4;

}  // namespace ckpt::track
