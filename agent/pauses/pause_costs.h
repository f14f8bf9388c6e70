// SPDX-License-Identifier: Apache-2.0
// The times of a pause's terms on this node, measured in the pauses that it took part in. Each mode and term
// has a line over the bytes that the term grows with. The line has a factor for threads, descriptors and
// mappings. Before the first pause, the lines come from a rehearsal (rehearsal.h), or else from a typical
// server. Measurements outweigh these lines at once.
//   PauseCosts costs;  costs.learn(kind, term, bytes, took);  costs.line(kind, term).at(bytes)
// Different sizes are stored separately, so that many pauses of small jobs do not displace the pause of a
// large job.
// Threads: one owner. The class uses no clock and no I/O. Errors: decode() refuses incomplete text.
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

// The rates of host memory in bytes per second. 0 means that a rate is unknown.
struct MemoryRates {
  std::uint64_t read = 0;   // rate for reading existing memory
  std::uint64_t write = 0;  // rate for writing memory that the kernel must still allocate
};

// Returns the higher of `kept` and the rate of `bytes` in `took`, because a bound must not use a rate that a
// move has exceeded. Returns 0 if no rate is stored.
[[nodiscard]] std::uint64_t faster(std::uint64_t known, std::uint64_t bytes, Nanos took);

// Returns CostLine::items_permille of items that take `ratio` times as long as on a typical server.
[[nodiscard]] std::uint32_t items_permille_of(double ratio);

class PauseCosts {
 public:
  // Sets the line that applies before the first measurement.
  void assume(PauseKind kind, PauseTerm term, wire::CostLine line) { assumed_[{kind, term}] = line; }
  void learn_memory(MemoryRates rates) { memory_ = rates; }
  [[nodiscard]] const MemoryRates& memory() const noexcept { return memory_; }
  // Records the programs of the rehearsal, and the reason for its failure. Both are empty if there was none.
  void learn_rehearsal(std::string of, std::string problem) {
    rehearsed_ = std::move(of);
    problem_ = std::move(problem);
  }
  [[nodiscard]] const std::string& rehearsed() const noexcept { return rehearsed_; }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  // Adds a measurement. `items` is the time that the job's threads, descriptors and mappings take on a
  // typical server.
  void learn(PauseKind kind, PauseTerm term, std::uint64_t bytes, Nanos took, Nanos items = 0);
  [[nodiscard]] wire::CostLine line(PauseKind kind, PauseTerm term) const;
  [[nodiscard]] PauseLines lines(PauseKind kind) const;
  // Adds the last round of a copy of device memory, which does not depend on the mode.
  void learn_copy(std::uint64_t state_bytes, Nanos took) {
    learn(kCopyOf, PauseTerm::kFinal, state_bytes, took);
  }
  [[nodiscard]] wire::CostLine copy_line() const { return line(kCopyOf, PauseTerm::kFinal); }

  [[nodiscard]] std::vector<std::byte> encode() const;
  static Result<PauseCosts> decode(std::span<const std::byte> bytes);

 private:
  static constexpr PauseKind kCopyOf = PauseKind::kCooperative;  // the cooperative mode, which has no other
                                                                 // final term
  [[nodiscard]] wire::CostLine before(PauseKind kind, PauseTerm term) const;
  [[nodiscard]] std::uint32_t items_permille(PauseKind kind, PauseTerm term,
                                             const wire::CostLine& line) const;
  struct Seen {
    std::uint64_t bytes = 0;
    Nanos took = 0;
    Nanos items = 0;
  };
  using Key = std::tuple<PauseKind, PauseTerm, unsigned>;  // the last element is the class of size
  std::map<Key, std::deque<Seen>> seen_;
  std::map<std::pair<PauseKind, PauseTerm>, wire::CostLine> assumed_;
  MemoryRates memory_;
  std::string rehearsed_;
  std::string problem_;
};

}  // namespace ckpt::agent
