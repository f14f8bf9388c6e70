// SPDX-License-Identifier: Apache-2.0
// Keyed 128-bit fingerprints of chunks: equal bytes and length <=> equal fingerprint, but for a chance below
// 2^-95 per compare for anybody who does not know the key (DESIGN §5 rule 3). Keys are fresh for every
// migration and never leave the control plane. The definition is in fingerprint_core.h; all implementations
// (scalar, AVX2, GPU) agree.
//
//   FingerprintKey key = ...32 bytes from the control connection...;
//   auto params = FingerprintParams::expand(key, FingerprintPurpose::kChunks);   // 12 KiB, keep it
//   Fingerprint f = fingerprint(*params, bytes);                                 // host memory, one core
//
// Threads: everything here is immutable or pure. No function fails. Lengths are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "libckpt/track/fingerprint_core.h"

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

// The fingerprint of `bytes` zero bytes, without touching memory: comparing with it is how zero chunks are
// found.
[[nodiscard]] Fingerprint fingerprint_of_zeroes(const FingerprintParams& params,
                                                std::uint64_t bytes) noexcept;

// The implementations by name, for tests and benches; unsupported ones are not listed.
struct FingerprintImplementation {
  const char* name;
  Fingerprint (*function)(const FingerprintTables& tables, const void* data, std::uint64_t bytes) noexcept;
};
[[nodiscard]] std::span<const FingerprintImplementation> fingerprint_implementations() noexcept;

}  // namespace ckpt::track
