// SPDX-License-Identifier: Apache-2.0
// Fingerprints of host memory by the fastest method of this processor. fingerprint_walk.h describes how the
// memory is read. The code is inline so that the device code built for the host (kernels.cu) is the same
// code. The processor is queried once. No function fails. Definition: fingerprint_core.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "libckpt/datapath/track/fingerprint_core.h"
#include "libckpt/datapath/track/fingerprint_walk.h"

namespace ckpt::track {

// A fingerprint function. `marks` is null, or an array of one mark per block. `next` is null, or memory of
// the same length that will be read next (a hint, see Walk).
using FingerprintFunction = Fingerprint (*)(const FingerprintTables& tables, const void* data,
                                            std::uint64_t bytes, std::uint32_t* marks,
                                            const void* next) noexcept;

// Appends the stretches, which have equal lengths, to `chain`.
inline void join(const FingerprintTables& tables, const Walk& walk, Chain& chain) noexcept {
  for (int a = 0; a < 2; ++a) {
    chain.h[a] = walk.h[0][a];
    for (std::uint32_t s = 1; s < kStretches; ++s)
      chain.h[a] = add_mod(multiply_mod(chain.h[a], tables.power[a][walk.blocks]), walk.h[s][a]);
  }
}

// Appends the blocks from `block` on, with the last one filled up with zeros, and returns the finished
// fingerprint.
template <BlockFunction kBlock>
Fingerprint finish_chain(const FingerprintTables& tables, const unsigned char* start, std::uint64_t bytes,
                         std::uint64_t block, std::uint32_t* marks, Chain& chain) noexcept {
  for (; block * kBlockBytes < bytes; ++block) {
    const unsigned char* at = start + block * kBlockBytes;
    alignas(64) unsigned char filled_up[kBlockBytes];
    if (const std::uint64_t rest = bytes - block * kBlockBytes; rest < kBlockBytes) {
      std::memcpy(filled_up, at, rest);
      std::memset(filled_up + rest, 0, kBlockBytes - rest);
      at = filled_up;
    }
    const BlockSums sums = kBlock(tables, at);
    const std::uint64_t z0 = compress(tables, 0, sums);
    chain.add(tables, z0, compress(tables, 1, sums));
    if (marks != nullptr) marks[block] = mark_of(z0);
  }
  return chain.finish(tables, bytes);
}

inline Fingerprint fingerprint_avx2(const FingerprintTables& tables, const void* data, std::uint64_t bytes,
                                    std::uint32_t* marks, const void* next) noexcept {
  const auto* const start = static_cast<const unsigned char*>(data);
  Chain chain;
  chain_avx2(tables, start, bytes / kBlockBytes, marks, static_cast<const unsigned char*>(next), chain);
  return finish_chain<&nh_block_avx2>(tables, start, bytes, bytes / kBlockBytes, marks, chain);
}

template <WalkFunction kWalk, BlockFunction kBlock>
Fingerprint fingerprint_with(const FingerprintTables& tables, const void* data, std::uint64_t bytes,
                             std::uint32_t* marks, const void* next) noexcept {
  const auto* const start = static_cast<const unsigned char*>(data);
  const std::uint64_t whole = bytes / kBlockBytes;
  Chain chain;
  std::uint64_t block = 0;
  while (whole - block >= kStretches) {
    const std::uint64_t stretch = std::min<std::uint64_t>((whole - block) / kStretches, kMaxPower);
    const bool last = block + (stretch + 1) * kStretches > whole;
    Walk walk{
        start + block * kBlockBytes,
        stretch,
        last ? static_cast<const unsigned char*>(next) : start + (block + stretch * kStretches) * kBlockBytes,
        marks != nullptr ? marks + block : nullptr,
        {{chain.h[0], chain.h[1]}, {0, 0}, {0, 0}, {0, 0}}};
    kWalk(tables, walk);
    join(tables, walk, chain);
    block += stretch * kStretches;
  }
  return finish_chain<kBlock>(tables, start, bytes, block, marks, chain);
}

inline constexpr FingerprintFunction kFingerprintScalar = &fingerprint_with<&walk_scalar, &nh_block_scalar>;
inline constexpr FingerprintFunction kFingerprintAvx2 = &fingerprint_avx2;
inline constexpr FingerprintFunction kFingerprintAvx512 = &fingerprint_with<&walk_avx512, &nh_block_avx2>;

// Returns the fastest function for this processor. AMD's Zen 4 needs two cycles for 512 bits, and sequential
// reading is faster there than four streams.
inline FingerprintFunction pick_fingerprint() noexcept {
  if (has_avx512() && !__builtin_cpu_is("amd")) return kFingerprintAvx512;
  return __builtin_cpu_supports("avx2") ? kFingerprintAvx2 : kFingerprintScalar;
}

inline Fingerprint fingerprint_host(const FingerprintTables& tables, const void* data, std::uint64_t bytes,
                                    std::uint32_t* marks = nullptr, const void* next = nullptr) noexcept {
  static const FingerprintFunction function = pick_fingerprint();
  return function(tables, data, bytes, marks, next);
}

}  // namespace ckpt::track
