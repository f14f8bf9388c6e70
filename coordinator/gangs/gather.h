// SPDX-License-Identifier: Apache-2.0
// The barrier at which all ranks of a gang stop, found without a collective (GANG-1, docs/adr/0038). Each
// rank counts its barriers. A rank is ordered to stop at a barrier, and its keeper then reads the count. A
// count below that barrier is a promise. A rank at or beyond that barrier may not have seen the order; then
// all ranks receive a later barrier. A rank that has received any order stops at its next barrier. So this
// ends after at most as many rounds as there are ranks.
// Threads: value type; pure. Errors: an impossible count is treated like a count that is too high.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::coordinator {

class Gather {
 public:
  explicit Gather(std::size_t ranks) : promised_(ranks, false) {}

  // Returns the barrier at which all ranks must stop, as far as known.
  [[nodiscard]] std::uint64_t barrier() const { return barrier_; }
  // Returns whether the rank has not yet promised to stop at barrier().
  [[nodiscard]] bool needs_order(std::size_t rank) const { return !promised_[rank]; }
  [[nodiscard]] bool is_agreed() const;
  // Processes a rank's answer: the barrier that was in force, and the rank's count at that time. An answer to
  // an older order changes nothing.
  void counted(std::size_t rank, std::uint64_t stop_at, std::uint64_t barriers);

 private:
  std::uint64_t barrier_ = 1;
  std::vector<bool> promised_;
};

}  // namespace ckpt::coordinator
