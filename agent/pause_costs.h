// SPDX-License-Identifier: Apache-2.0
// What the terms of a pause take on this node, learnt from the pauses that it had part in: for each way of moving and term a line over the bytes
// that the term grows with. Before there are pauses the lines are those of a common server; what was measured outweighs them at once.
//   PauseCosts costs;  costs.learn(kind, term, bytes, took);  costs.line(kind, term).at(bytes)
// Sizes are kept apart, so that many pauses of small jobs do not wash away the one of a large job.
// Threads: one owner. Pure: no clock, no I/O. Errors: decode() refuses what is not whole.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "libckpt/base/result.h"
#include "libckpt/wire/pause_terms.h"

namespace ckpt::agent {

using wire::PauseKind;
using wire::PauseTerm;
using PauseLines = std::array<wire::CostLine, wire::kPauseTerms>;

class PauseCosts {
 public:
  void learn(PauseKind kind, PauseTerm term, std::uint64_t bytes, Nanos took);
  [[nodiscard]] wire::CostLine line(PauseKind kind, PauseTerm term) const;
  [[nodiscard]] PauseLines lines(PauseKind kind) const;

  [[nodiscard]] std::vector<std::byte> encode() const;
  static Result<PauseCosts> decode(std::span<const std::byte> bytes);

 private:
  struct Seen {
    std::uint64_t bytes = 0;
    Nanos took = 0;
  };
  using Key = std::tuple<PauseKind, PauseTerm, unsigned>;  // the last: how large
  std::map<Key, std::deque<Seen>> seen_;
};

}  // namespace ckpt::agent
