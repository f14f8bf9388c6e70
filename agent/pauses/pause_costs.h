// SPDX-License-Identifier: Apache-2.0
// The times of a pause's terms on this node, learnt from the pauses that it took part in. For each mode and
// term there is a line over the bytes that the term grows with. It has a factor for threads and the like.
// Before there are pauses the lines are those of a rehearsal (rehearsal.h), else of a common server;
// measurements outweigh them at once.
//   PauseCosts costs;  costs.learn(kind, term, bytes, took);  costs.line(kind, term).at(bytes)
// Sizes are kept apart, so that many pauses of small jobs do not wash away the one of a large job.
// Threads: one owner. Pure: no clock, no I/O. Errors: decode() refuses incomplete text.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/pause_terms.h"

namespace ckpt::agent {

using wire::PauseKind;
using wire::PauseTerm;
using PauseLines = std::array<wire::CostLine, wire::kPauseTerms>;

// The rates of host memory, in bytes a second; 0: not known.
struct MemoryRates {
  std::uint64_t read = 0;   // of memory that is there
  std::uint64_t write = 0;  // of memory that the kernel has yet to give
};

// Returns `kept`, or the rate that a move has reached itself: no bound may rest on a rate that was surpassed.
// 0 if nothing is kept.
[[nodiscard]] std::uint64_t faster(std::uint64_t kept, std::uint64_t bytes, Nanos took);

// CostLine::items_permille of items that take `ratio` times as long as on a common server.
[[nodiscard]] std::uint32_t items_permille_of(double ratio);

class PauseCosts {
 public:
  // Returns the line before anything is learnt.
  void assume(PauseKind kind, PauseTerm term, wire::CostLine line) { assumed_[{kind, term}] = line; }
  void learn_memory(MemoryRates rates) { memory_ = rates; }
  [[nodiscard]] const MemoryRates& memory() const noexcept { return memory_; }
  // Returns the programs of the rehearsal, and why it failed; both empty: there was none.
  void learn_rehearsal(std::string of, std::string problem) {
    rehearsed_ = std::move(of);
    problem_ = std::move(problem);
  }
  [[nodiscard]] const std::string& rehearsed() const noexcept { return rehearsed_; }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  // `items` is the part that its threads, descriptors and the like take on a common server.
  void learn(PauseKind kind, PauseTerm term, std::uint64_t bytes, Nanos took, Nanos items = 0);
  [[nodiscard]] wire::CostLine line(PauseKind kind, PauseTerm term) const;
  [[nodiscard]] PauseLines lines(PauseKind kind) const;
  // The last round of a copy of device memory, which does not depend on the mode.
  void learn_copy(std::uint64_t state_bytes, Nanos took) {
    learn(kCopyOf, PauseTerm::kFinal, state_bytes, took);
  }
  [[nodiscard]] wire::CostLine copy_line() const { return line(kCopyOf, PauseTerm::kFinal); }

  [[nodiscard]] std::vector<std::byte> encode() const;
  static Result<PauseCosts> decode(std::span<const std::byte> bytes);

 private:
  static constexpr PauseKind kCopyOf = PauseKind::kCooperative;  // which has no other final term
  [[nodiscard]] wire::CostLine before(PauseKind kind, PauseTerm term) const;
  [[nodiscard]] std::uint32_t items_permille(PauseKind kind, PauseTerm term,
                                             const wire::CostLine& line) const;
  struct Seen {
    std::uint64_t bytes = 0;
    Nanos took = 0;
    Nanos items = 0;
  };
  using Key = std::tuple<PauseKind, PauseTerm, unsigned>;  // the last: how large
  std::map<Key, std::deque<Seen>> seen_;
  std::map<std::pair<PauseKind, PauseTerm>, wire::CostLine> assumed_;
  MemoryRates memory_;
  std::string rehearsed_;
  std::string problem_;
};

}  // namespace ckpt::agent
