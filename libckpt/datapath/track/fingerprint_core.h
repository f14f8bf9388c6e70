// SPDX-License-Identifier: Apache-2.0
// The definition of a fingerprint, as portable inline code for host compilers and nvcc.
//
// Let M be a message of L bytes. All integers are little-endian; p = 2^61 - 1.
//  1. Blocks. M is cut into n = ceil(L / 4096) blocks of 4096 bytes; a short last block is filled up with
//  zero bytes.
//     L = 0 gives n = 0. A block is 1024 words m[0..1023] of 32 bits.
//  2. NH, three Toeplitz passes. For pass j = 0, 1, 2, with the key words k[0..1039]:
//       y[j] = sum over i = 0..511 of ((m[2i] + k[2i + 8j]) mod 2^32) * ((m[2i+1] + k[2i+1 + 8j]) mod 2^32)
//       mod 2^64
//     Each pass shifts the key by 8 words. Two different blocks collide in all passes with a chance of at
//     most 2^-96.
//  3. Compression. The 192 bits of y are cut into four pieces of 48 bits without losing any:
//       c[0..2] = y[0..2] mod 2^48,   c[3] = y[0] >> 48 | (y[1] >> 48) << 16 | (y[2] >> 48) << 32
//     and each of the two lanes a = 0, 1 makes of them  z_a = sum of c[q] * mix[a][q]  mod p  (multilinear,
//     keyed).
//  4. Chaining. Lane a is a polynomial in the key point[a]:
//       h = 1;  for each block in order: h = h * point[a] + z_a;  finally h = h * point[a] + (L mod p) (all
//       mod p)
//     The leading 1 keeps messages of different block counts apart, the last coefficient those of different
//     lengths.
//  5. The fingerprint is (lo, hi) = (h of lane 0, h of lane 1), each fully reduced to [0, p).
// Two messages of up to 2 MiB are chosen without the key. The probability that their fingerprints collide is
// at most 2^-96 + (514 / 2^61 + 2^-61)^2 < 2^-95.
//
// The key words come from ChaCha20 (RFC 8439) under the 32-byte secret, nonce = (purpose, 0, 0), counter from
// zero. The keystream read as 32-bit words gives k[0..1039]. Then, as 64-bit words, it gives mix[0][0..3],
// mix[1][0..3], point[0], point[1]. Each of these values is taken modulo 2^61, and a result of p is taken as
// 0.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define CKPT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CKPT_HOST_DEVICE inline
#endif

namespace ckpt::track {

struct Fingerprint {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
#ifndef __CUDACC__
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
#endif
};
static_assert(sizeof(Fingerprint) == 16);

inline constexpr std::uint32_t kBlockBytes = 4096;
inline constexpr std::uint32_t kBlockWords = kBlockBytes / 4;
inline constexpr int kPasses = 3;
inline constexpr int kPassShiftWords = 8;
inline constexpr std::uint32_t kKeyWords = kBlockWords + (kPasses - 1) * kPassShiftWords;
inline constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;

// The maximum length of chunks on a device (the table of powers ends there). Host memory may have any length.
inline constexpr std::uint64_t kMaxChunkBytes = std::uint64_t{2} << 20;
inline constexpr std::uint32_t kMaxPower = kMaxChunkBytes / kBlockBytes + 1;

// The expanded key and the values derived from it, with the same bytes on host and device.
struct alignas(64) FingerprintTables {
  std::uint32_t nh[kKeyWords];
  std::uint64_t mix[2][4];
  std::uint64_t point[2];
  std::uint64_t power[2]
                     [kMaxPower + 1];  // power[a][e] = point[a]^e, so that blocks can be summed in any order
  std::uint64_t zero_block[2];         // the z_a of a block of zeros, for both lanes
};

// The result of NH for one block: the sums of the three passes.
struct BlockSums {
  std::uint64_t y[kPasses] = {0, 0, 0};
};

CKPT_HOST_DEVICE std::uint64_t reduce_once(std::uint64_t value) {
  return value >= kPrime ? value - kPrime : value;
}

CKPT_HOST_DEVICE std::uint64_t add_mod(std::uint64_t a, std::uint64_t b) {
  return reduce_once(a + b);
}

// Returns value mod p for value < 2^122.
CKPT_HOST_DEVICE std::uint64_t reduce_wide(unsigned __int128 value) {
  const std::uint64_t low = static_cast<std::uint64_t>(value) & kPrime;
  const std::uint64_t high = static_cast<std::uint64_t>(value >> 61);
  return reduce_once(reduce_once((low + high) & kPrime) + ((low + high) >> 61));
}

CKPT_HOST_DEVICE std::uint64_t multiply_mod(std::uint64_t a, std::uint64_t b) {
  return reduce_wide(static_cast<unsigned __int128>(a) * b);
}

// Computes step 3 for lane `a`.
CKPT_HOST_DEVICE std::uint64_t compress(const FingerprintTables& tables, int a, const BlockSums& sums) {
  constexpr std::uint64_t kLow48 = (std::uint64_t{1} << 48) - 1;
  const std::uint64_t rest = sums.y[0] >> 48 | (sums.y[1] >> 48) << 16 | (sums.y[2] >> 48) << 32;
  const std::uint64_t* mix = tables.mix[a];
  unsigned __int128 total = static_cast<unsigned __int128>(sums.y[0] & kLow48) * mix[0];
  total += static_cast<unsigned __int128>(sums.y[1] & kLow48) * mix[1];
  total += static_cast<unsigned __int128>(sums.y[2] & kLow48) * mix[2];
  total += static_cast<unsigned __int128>(rest) * mix[3];
  return reduce_wide(total);
}

// Computes step 2 for one pair of words at word index 2i of a block: adds its products to the sums.
CKPT_HOST_DEVICE void add_pair(const std::uint32_t* key_at_pair, std::uint32_t even, std::uint32_t odd,
                               BlockSums& sums) {
  for (int j = 0; j < kPasses; ++j) {
    const std::uint32_t left = even + key_at_pair[j * kPassShiftWords];
    const std::uint32_t right = odd + key_at_pair[j * kPassShiftWords + 1];
    sums.y[j] += static_cast<std::uint64_t>(left) * right;
  }
}

// The state of steps 4 and 5, block after block.
struct Chain {
  std::uint64_t h[2] = {1, 1};

  CKPT_HOST_DEVICE void add(const FingerprintTables& tables, std::uint64_t z0, std::uint64_t z1) {
    h[0] = add_mod(multiply_mod(h[0], tables.point[0]), z0);
    h[1] = add_mod(multiply_mod(h[1], tables.point[1]), z1);
  }
  CKPT_HOST_DEVICE void add(const FingerprintTables& tables, const BlockSums& sums) {
    add(tables, compress(tables, 0, sums), compress(tables, 1, sums));
  }
  CKPT_HOST_DEVICE Fingerprint finish(const FingerprintTables& tables, std::uint64_t bytes) {
    add(tables, reduce_once(bytes & kPrime), reduce_once(bytes & kPrime));
    return Fingerprint{h[0], h[1]};
  }
};

}  // namespace ckpt::track
