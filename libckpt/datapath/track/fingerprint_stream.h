// SPDX-License-Identifier: Apache-2.0
// The fingerprint of host memory piece by piece, for memory that is incomplete so far, or too long for one
// core. The value equals that of the whole.
//
//   FingerprintStream stream(params);
//   stream.add(first); ...; stream.add(last);      // all but the last a multiple of kBlockBytes
//   Fingerprint f = stream.value();
//
// Pieces chain by step 4 of the definition. Let H = h * point after some blocks. A piece of n blocks and L
// bytes with fingerprint f changes H to H * point^n + (f - L - point^(n + 1)). The fingerprint of all pieces
// is H plus the length of all pieces.
//
// Threads: a value with one owner. No function fails.
#pragma once

#include <memory>

#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::track {

class FingerprintStream {
 public:
  explicit FingerprintStream(std::shared_ptr<const FingerprintParams> params);
  void add(std::span<const std::byte> piece);
  [[nodiscard]] Fingerprint value() const noexcept;

 private:
  std::shared_ptr<const FingerprintParams> params_;
  std::uint64_t h_[2];  // h multiplied by point
  std::uint64_t bytes_ = 0;
};

// Returns the fingerprint of `bytes`, computed by several threads if that is faster.
[[nodiscard]] Fingerprint fingerprint_of_much(const FingerprintParams& params,
                                              std::span<const std::byte> bytes);

}  // namespace ckpt::track
