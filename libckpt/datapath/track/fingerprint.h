// SPDX-License-Identifier: Apache-2.0
// Keyed 128-bit fingerprints of chunks: equal bytes and length <=> equal fingerprint. The probability of an
// error is below 2^-95 per comparison for a party that does not know the key (ENG-3). Keys are new for every
// migration and never leave the control plane. The definition is in fingerprint_core.h; all implementations
// (scalar, AVX2, AVX-512, GPU) agree.
//
//   FingerprintKey key = ...32 bytes from the control connection...;
//   auto params = FingerprintParams::expand(key, FingerprintPurpose::kChunks);   // 12 KiB, keep it
//   Fingerprint f = fingerprint(*params, bytes);                                 // host memory, one core
//   std::vector<std::uint32_t> marks(mark_count(bytes.size()));  // one for each block of 4 KiB
//   Fingerprint f = fingerprint(*params, bytes, marks);                          // as fast
//
// Marks show which blocks of a chunk changed since it was sent. The mark of a block (kBlockBytes; a short
// last block is filled up with zeros) is part of the definition's step 3. The mark is the low 32 bits of lane
// 0's z. A mark is the same on every processor and device. Marks are hints. Equal blocks have equal marks.
// Two different blocks, chosen without the key, have equal marks with a probability below 2^-30. Their
// c[0..3] are equal with a probability of at most 2^-96. If they differ, the difference of their z is uniform
// modulo p. Of the 2^61 - 1 differences fewer than 2^30 leave the low 32 bits equal (2^-31, and 2^-58 for the
// keys' bias). Among n changed blocks, a block is thus missed with a probability below n * 2^-30. A chunk
// rebuilt from the blocks with different marks must be compared by the fingerprint of the whole chunk.
//
// Threads: everything here is immutable or pure. No function fails. Lengths are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "libckpt/datapath/track/fingerprint_core.h"

namespace ckpt::track {

using FingerprintKey = std::array<std::byte, 32>;

// The purpose of a fingerprint's key. The root over a table of fingerprints must not use the key of the
// fingerprints: a universal hash guarantees nothing for messages that depend on its own key.
enum class FingerprintPurpose : std::uint32_t { kChunks = 0, kRoot = 1 };

// The expanded key. It is plain memory (FingerprintTables), so that it can be uploaded to a device unchanged.
class FingerprintParams {
 public:
  static std::shared_ptr<const FingerprintParams> expand(const FingerprintKey& key,
                                                         FingerprintPurpose purpose);

  [[nodiscard]] const FingerprintTables& tables() const noexcept { return tables_; }
  // Wipes the key material.
  ~FingerprintParams();
  FingerprintParams(const FingerprintParams&) = delete;
  FingerprintParams& operator=(const FingerprintParams&) = delete;

 private:
  FingerprintParams(const FingerprintKey& key, FingerprintPurpose purpose);
  FingerprintTables tables_;
};

// Returns the fingerprint of host memory, by the fastest method of this processor. The memory may have any
// length and alignment.
[[nodiscard]] Fingerprint fingerprint(const FingerprintParams& params,
                                      std::span<const std::byte> bytes) noexcept;

// Returns the number of blocks of a message of `bytes`, which is also its number of marks.
[[nodiscard]] constexpr std::uint64_t mark_count(std::uint64_t bytes) noexcept {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0);
}

// Returns the fingerprint, and stores the marks of the blocks. marks.size() must be at least
// mark_count(bytes.size()).
[[nodiscard]] Fingerprint fingerprint(const FingerprintParams& params, std::span<const std::byte> bytes,
                                      std::span<std::uint32_t> marks) noexcept;

// Returns the fingerprint of `bytes` zero bytes, without accessing memory. Zero chunks are found by
// comparison with it.
[[nodiscard]] Fingerprint fingerprint_of_zeroes(const FingerprintParams& params,
                                                std::uint64_t bytes) noexcept;

// Returns the mark of a block of zeros.
[[nodiscard]] std::uint32_t mark_of_zeroes(const FingerprintParams& params) noexcept;

// An implementation with its name, for tests and benchmarks. Unsupported implementations are not listed.
// fingerprint() uses the last one.
struct FingerprintImplementation {
  const char* name;
  Fingerprint (*whole)(const FingerprintTables& tables, const void* data, std::uint64_t bytes,
                       std::uint32_t* marks, const void* next) noexcept;

  [[nodiscard]] Fingerprint function(const FingerprintTables& tables, const void* data, std::uint64_t bytes,
                                     std::uint32_t* marks = nullptr) const noexcept {
    return whole(tables, data, bytes, marks, nullptr);
  }
};
[[nodiscard]] std::span<const FingerprintImplementation> fingerprint_implementations() noexcept;

}  // namespace ckpt::track
