// SPDX-License-Identifier: Apache-2.0
// Keyed 128-bit fingerprints of chunks: equal bytes and length <=> equal fingerprint. The chance of an error
// is below 2^-95 per compare for a party that does not know the key (ENG-3). Keys are fresh for every
// migration and never leave the control plane. The definition is in fingerprint_core.h; all implementations
// (scalar, AVX2, AVX-512, GPU) agree.
//
//   FingerprintKey key = ...32 bytes from the control connection...;
//   auto params = FingerprintParams::expand(key, FingerprintPurpose::kChunks);   // 12 KiB, keep it
//   Fingerprint f = fingerprint(*params, bytes);                                 // host memory, one core
//   std::vector<std::uint32_t> marks(mark_count(bytes.size()));  // one for each block of 4 KiB
//   Fingerprint f = fingerprint(*params, bytes, marks);                          // as fast
//
// Marks tell which blocks of a chunk changed since it was sent. The mark of a block (kBlockBytes; a short
// last one is filled up with zeroes) is part of the definition's step 3. It is the low 32 bits of z of lane
// 0. It is the same on every processor and device. They are hints. Equal blocks have equal marks. Two
// different blocks, chosen without the key, have equal ones with a chance below 2^-30. Their c[0..3] are
// equal with at most 2^-96. If not, the difference of their z is uniform modulo p. Of the 2^61 - 1
// differences fewer than 2^30 leave the low 32 bits alike (2^-31, and 2^-58 for the keys' bias). So of n
// changed blocks one is missed with a chance below n * 2^-30. A chunk rebuilt from the blocks whose marks
// differ must be compared by the fingerprint of the whole.
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

// The root over a table of fingerprints must not use the key of the fingerprints: a universal hash promises
// nothing about messages that depend on its own key.
enum class FingerprintPurpose : std::uint32_t { kChunks = 0, kRoot = 1 };

// The expanded key. Plain memory (FingerprintTables), so that it is uploaded to a device as it is.
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

// The fingerprint of host memory, by the fastest way this processor has. Any length; no alignment needed.
[[nodiscard]] Fingerprint fingerprint(const FingerprintParams& params,
                                      std::span<const std::byte> bytes) noexcept;

// Blocks, and so marks, of a message of `bytes`.
[[nodiscard]] constexpr std::uint64_t mark_count(std::uint64_t bytes) noexcept {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0);
}

// The same, and the marks of the blocks. marks.size() must be at least mark_count(bytes.size()).
[[nodiscard]] Fingerprint fingerprint(const FingerprintParams& params, std::span<const std::byte> bytes,
                                      std::span<std::uint32_t> marks) noexcept;

// The fingerprint of `bytes` zero bytes, without touching memory: comparing with it is how zero chunks are
// found.
[[nodiscard]] Fingerprint fingerprint_of_zeroes(const FingerprintParams& params,
                                                std::uint64_t bytes) noexcept;

// The mark of a block of zeroes.
[[nodiscard]] std::uint32_t mark_of_zeroes(const FingerprintParams& params) noexcept;

// The implementations by name, for tests and benches; unsupported ones are not listed. The last is what
// fingerprint() uses.
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
