// SPDX-License-Identifier: Apache-2.0
// The barrier at which all ranks of a gang stop, without a collective (GANG-1, docs/adr/0038). Each rank counts its
// barriers. It is told where to stop, and its keeper then reads the count. A count below that barrier is a promise. A rank
// that is at it or beyond may not have seen the order: then all are told a later barrier. A rank that has been told any
// stops at its next one, so this ends after as many rounds as there are ranks.
// Threads: value type; pure. Errors: a count that cannot be is treated like one that is too high.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::coordinator {

class Gather {
 public:
  explicit Gather(std::size_t ranks) : promised_(ranks, false) {}

  // Where all are to stop, as far as known.
  [[nodiscard]] std::uint64_t barrier() const { return barrier_; }
  // This rank has not answered that it stops there.
  [[nodiscard]] bool is_to_be_told(std::size_t rank) const { return !promised_[rank]; }
  [[nodiscard]] bool is_agreed() const;
  // The answer of a rank: the barrier that was in force, and its count then. An answer to an older order changes nothing.
  void counted(std::size_t rank, std::uint64_t stop_at, std::uint64_t barriers);

 private:
  std::uint64_t barrier_ = 1;
  std::vector<bool> promised_;
};

}  // namespace ckpt::coordinator
