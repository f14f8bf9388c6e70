// SPDX-License-Identifier: Apache-2.0
// Device code: fingerprints of a list of chunks, a plain read of a chunk, and a list of copies. On a GPU a
// thread block fingerprints a run of chunks. Each warp takes four fingerprint blocks of 4 KiB at a time. The
// key words that it reads from shared memory thus serve four loads. A transposing reduction combines the sums
// of the lanes. Each block's value is weighted by its power of the polynomial's point, so that order does not
// matter. Built for the host, a thread block's run consists of calls of the vectorized host code. Memory may
// change while it is read (ENG-2): every byte is read once.
#include <portable/kernel.h>

#include "libckpt/datapath/track/fingerprint_core.h"
#include "libckpt/datapath/track/kernels.h"

using namespace ckpt::track;

namespace {

// Returns the first chunk of thread block `block` of `blocks`. The blocks share `count` chunks evenly, with
// adjacent chunks together.
#if defined(__CUDACC__)
__device__ __forceinline__
#endif
    uint32_t
    run_begin(uint32_t block, uint32_t blocks, uint32_t count) {
  return static_cast<uint32_t>(static_cast<uint64_t>(count) * block / blocks);
}

}  // namespace

#if defined(__CUDACC__)

namespace {

constexpr uint32_t kWarps = kFingerprintThreads / 32;
constexpr uint32_t kGroup = 4;  // the number of fingerprint blocks that a warp reads concurrently
constexpr uint32_t kVectorsPerBlock = kBlockBytes / 16;
constexpr uint32_t kFullWarp = 0xffffffffu;

// Returns 16 bytes at `offset` of a chunk of `bytes`, with zeros beyond its end.
__device__ __forceinline__ uint4 load_vector(const unsigned char* chunk, uint64_t offset, uint64_t bytes) {
  if (offset + 16 <= bytes) return __ldcs(reinterpret_cast<const uint4*>(chunk + offset));
  uint32_t words[4] = {0, 0, 0, 0};
  for (uint64_t at = offset; at < bytes; ++at)
    words[(at - offset) / 4] |= static_cast<uint32_t>(chunk[at]) << (8 * ((at - offset) % 4));
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint64_t pair_products(uint4 m, uint4 k) {
  return static_cast<uint64_t>(m.x + k.x) * (m.y + k.y) + static_cast<uint64_t>(m.z + k.z) * (m.w + k.w);
}

// Computes one lane's part of the sums of the blocks first..first+3.
template <bool kWhole>
__device__ __forceinline__ void lane_sums(const uint4* key, const unsigned char* chunk, uint64_t bytes,
                                          uint32_t first, uint32_t lane, uint64_t (&y)[kGroup][kPasses]) {
#pragma unroll 2
  for (uint32_t vector = lane; vector < kVectorsPerBlock; vector += 32) {
    uint4 m[kGroup];
#pragma unroll
    for (uint32_t b = 0; b < kGroup; ++b) {
      const uint64_t offset = static_cast<uint64_t>(first + b) * kBlockBytes + vector * 16;
      if (kWhole) {
        m[b] = __ldcs(reinterpret_cast<const uint4*>(chunk + offset));
      } else {
        m[b] = load_vector(chunk, offset, bytes);
      }
    }
#pragma unroll
    for (int j = 0; j < kPasses; ++j) {
      const uint4 k = key[vector + j * (kPassShiftWords / 4)];
#pragma unroll
      for (uint32_t b = 0; b < kGroup; ++b) y[b][j] += pair_products(m[b], k);
    }
  }
}

// Adds the lanes' parts. Afterwards lane l has the sums of block (l >> 3) of the group.
__device__ __forceinline__ BlockSums reduce_group(const uint64_t (&y)[kGroup][kPasses], uint32_t lane) {
  const bool upper = (lane & 16) != 0;
  const bool odd = (lane & 8) != 0;
  uint64_t half[2][kPasses];
  BlockSums sums;
#pragma unroll
  for (int j = 0; j < kPasses; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint64_t keep = upper ? y[b + 2][j] : y[b][j];
      const uint64_t give = upper ? y[b][j] : y[b + 2][j];
      half[b][j] = keep + __shfl_xor_sync(kFullWarp, give, 16);
    }
    const uint64_t keep = odd ? half[1][j] : half[0][j];
    const uint64_t give = odd ? half[0][j] : half[1][j];
    sums.y[j] = keep + __shfl_xor_sync(kFullWarp, give, 8);
#pragma unroll
    for (int mask = 4; mask > 0; mask /= 2) sums.y[j] += __shfl_xor_sync(kFullWarp, sums.y[j], mask);
  }
  return sums;
}

__device__ __forceinline__ uint64_t shuffle_add_mod(uint64_t value, int mask) {
  return add_mod(value, __shfl_xor_sync(kFullWarp, value, mask));
}

}  // namespace

// Computes the fingerprints of the chunks [begin, end) of the list, which belong to this thread block.
extern "C" __global__ void __launch_bounds__(kFingerprintThreads, kFingerprintBlocksPerProcessor)
    ckpt_fingerprint(const FingerprintTables* tables, const DeviceChunk* chunks, Fingerprint* results,
                     uint32_t count) {
  __shared__ __align__(16) uint32_t key[kKeyWords];
  __shared__ uint64_t parts[2][kWarps][2];  // double-buffered for alternate chunks, so that one barrier per
                                            // chunk is enough
  for (uint32_t i = threadIdx.x; i < kKeyWords; i += kFingerprintThreads) key[i] = tables->nh[i];
  __syncthreads();

  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t polynomial = lane & 1;  // lanes 8b and 8b + 1 continue with block b, for the two polynomials
  const uint32_t begin = run_begin(blockIdx.x, gridDim.x, count);
  const uint32_t end = run_begin(blockIdx.x + 1, gridDim.x, count);
  DeviceChunk next = chunks[begin];  // the first chunk, which exists because there are never more thread
                                     // blocks than chunks
  for (uint32_t index = begin; index < end; ++index) {
    const DeviceChunk chunk = next;
    if (index + 1 < end) next = chunks[index + 1];  // loaded while the current chunk is read
    const auto* data = reinterpret_cast<const unsigned char*>(chunk.address);
    const uint32_t blocks = static_cast<uint32_t>((chunk.bytes + kBlockBytes - 1) / kBlockBytes);
    uint64_t total = 0;
    for (uint32_t first = warp * kGroup; first < blocks; first += kWarps * kGroup) {
      uint64_t y[kGroup][kPasses] = {};
      if (static_cast<uint64_t>(first + kGroup) * kBlockBytes <= chunk.bytes) {
        lane_sums<true>(reinterpret_cast<const uint4*>(key), data, chunk.bytes, first, lane, y);
      } else {
        lane_sums<false>(reinterpret_cast<const uint4*>(key), data, chunk.bytes, first, lane, y);
      }
      const BlockSums sums = reduce_group(y, lane);
      const uint32_t block = first + lane / 8;
      if ((lane & 6) == 0 && block < blocks) {
        const uint64_t z = compress(*tables, polynomial, sums);
        total = add_mod(total, multiply_mod(z, tables->power[polynomial][blocks - block]));
      }
    }
    total = shuffle_add_mod(shuffle_add_mod(total, 16), 8);
    if (lane < 2) parts[index % 2][warp][lane] = total;
    __syncthreads();
    if (threadIdx.x < 2) {
      uint64_t h = add_mod(tables->power[threadIdx.x][blocks + 1], reduce_once(chunk.bytes & kPrime));
      for (uint32_t w = 0; w < kWarps; ++w) h = add_mod(h, parts[index % 2][w][threadIdx.x]);
      (threadIdx.x == 0 ? results[index].lo : results[index].hi) = h;
    }
  }
}

// Performs a plain read, for the rate that limits a scan. The result is the xor of all 32-bit words of the
// chunk, so that no load is optimized away. A short last word is filled up with zeros.
extern "C" __global__ void __launch_bounds__(kReadThreads)
    ckpt_read(const DeviceChunk* chunks, uint64_t* results) {
  constexpr uint32_t kUnroll = 8;
  __shared__ uint32_t parts[kReadThreads / 32];
  const DeviceChunk chunk = chunks[blockIdx.x];
  const auto* data = reinterpret_cast<const unsigned char*>(chunk.address);
  const auto* vectors = reinterpret_cast<const uint4*>(data);
  const uint64_t count = chunk.bytes / 16;
  uint32_t folded = 0;
  uint64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * kReadThreads < count; i += kUnroll * kReadThreads) {
    uint4 m[kUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) m[u] = __ldcs(vectors + i + u * kReadThreads);
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) folded ^= m[u].x ^ m[u].y ^ m[u].z ^ m[u].w;
  }
  for (; i * 16 < chunk.bytes; i += kReadThreads) {
    const uint4 m = load_vector(data, i * 16, chunk.bytes);
    folded ^= m.x ^ m.y ^ m.z ^ m.w;
  }
  folded = __reduce_xor_sync(kFullWarp, folded);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = folded;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < kReadThreads / 32; ++w) folded ^= parts[w];
    results[blockIdx.x] = folded;
  }
}

// Copies an entry of the list. gridDim.y blocks share one copy.
extern "C" __global__ void __launch_bounds__(kCopyThreads) ckpt_copy(const DeviceCopy* copies) {
  const DeviceCopy copy = copies[blockIdx.x];
  const uint64_t vectors = copy.bytes / 16;
  const uint64_t step = static_cast<uint64_t>(gridDim.y) * kCopyThreads;
  auto* target = reinterpret_cast<uint4*>(copy.target);
  const auto* source = reinterpret_cast<const uint4*>(copy.source);
  const uint64_t start = static_cast<uint64_t>(blockIdx.y) * kCopyThreads + threadIdx.x;
#pragma unroll 4
  for (uint64_t i = start; i < vectors; i += step)
    target[i] = source != nullptr ? __ldcs(source + i) : make_uint4(0, 0, 0, 0);
  if (blockIdx.y == 0) {
    for (uint64_t at = vectors * 16 + threadIdx.x; at < copy.bytes; at += kCopyThreads)
      reinterpret_cast<unsigned char*>(target)[at] =
          source != nullptr ? reinterpret_cast<const unsigned char*>(source)[at] : 0;
  }
}

#else

#include "libckpt/datapath/track/fingerprint_host.h"
#include "libckpt/datapath/track/read_host.h"

namespace {

// Returns the chunk that the kernels read after chunk `index`, if it has the same length. Otherwise returns
// null.
const void* next_chunk(const DeviceChunk* chunks, uint32_t index, uint32_t count) {
  const bool alike = index + 1 < count && chunks[index + 1].bytes == chunks[index].bytes;
  return alike ? reinterpret_cast<const void*>(chunks[index + 1].address) : nullptr;
}

}  // namespace

PORTABLE_KERNEL(ckpt_fingerprint, const FingerprintTables* tables, const DeviceChunk* chunks,
                Fingerprint* results, uint32_t count) {
  const uint32_t end = run_begin(PORTABLE_BLOCK_INDEX() + 1, PORTABLE_GRID_BLOCKS(), count);
  for (uint32_t index = run_begin(PORTABLE_BLOCK_INDEX(), PORTABLE_GRID_BLOCKS(), count); index < end;
       ++index)
    results[index] = fingerprint_host(*tables, reinterpret_cast<const void*>(chunks[index].address),
                                      chunks[index].bytes, nullptr, next_chunk(chunks, index, count));
}

PORTABLE_KERNEL(ckpt_read, const DeviceChunk* chunks, uint64_t* results) {
  const uint32_t index = PORTABLE_BLOCK_INDEX();
  results[index] = read_host(reinterpret_cast<const void*>(chunks[index].address), chunks[index].bytes,
                             next_chunk(chunks, index, PORTABLE_GRID_BLOCKS()));
}

PORTABLE_KERNEL(ckpt_copy, const DeviceCopy* copies) {
  if (PORTABLE_BLOCK_INDEX_Y() != 0) return;
  const DeviceCopy copy = copies[PORTABLE_BLOCK_INDEX()];
  if (copy.source != 0) {
    std::memcpy(reinterpret_cast<void*>(copy.target), reinterpret_cast<const void*>(copy.source), copy.bytes);
  } else {
    std::memset(reinterpret_cast<void*>(copy.target), 0, copy.bytes);
  }
}

#endif
