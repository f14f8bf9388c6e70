// SPDX-License-Identifier: Apache-2.0
// Estimates the length of a pause in advance, and names the reason if it is too long. A migration mode lists
// the work of the pause (PauseWork, mode.h). Terms that the copy of device memory does not decide come from
// the job's last pause in the same mode. Otherwise they come from the lines of the node that does the work.
// Threads: plain values. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "agent/pauses/pause_costs.h"

namespace ckpt::agent {

// The work of a pause as a set of terms. Terms that are not part of the mode are not added.
class PauseWork {
 public:
  struct Part {
    bool on = false;
    std::uint64_t bytes = 0;  // number of bytes with which the term grows
    Nanos items = 0;          // time for threads, descriptors and mappings on a typical server
    Nanos known = 0;          // time of the term that does not come from the line
  };
  explicit PauseWork(PauseKind kind) : kind_(kind) {}
  PauseWork& add(PauseTerm term, std::uint64_t bytes = 0, Nanos items = 0, Nanos known = 0) {
    parts_[static_cast<std::size_t>(term)] = {true, bytes, items, known};
    return *this;
  }
  // Marks that context and process are saved while device memory is copied. The longer of the two times
  // counts.
  PauseWork& save_beside_copy() {
    beside_ = true;
    return *this;
  }
  [[nodiscard]] PauseKind kind() const noexcept { return kind_; }
  [[nodiscard]] bool saves_beside_copy() const noexcept { return beside_; }
  [[nodiscard]] const Part& operator[](PauseTerm term) const {
    return parts_[static_cast<std::size_t>(term)];
  }

 private:
  PauseKind kind_;
  std::array<Part, wire::kPauseTerms> parts_;
  bool beside_ = false;
};

struct PauseEstimate {
  wire::PauseFacts facts;  // estimate without the copy of device memory
  Nanos beside = 0;        // the part of the estimate that runs in parallel with the copy of device memory
  [[nodiscard]] Nanos total() const { return facts.ns.total(); }
  [[nodiscard]] Nanos fixed() const { return total() - beside; }
  // Returns this estimate with the copy of device memory. `whole` is the pause with the copy, as reported by
  // a mover that had the estimate `reported`. Nothing is known about a copy that was shorter than `reported.beside`.
  [[nodiscard]] wire::PauseFacts with_copy(Nanos whole, const PauseEstimate& reported) const;
};

// Returns the estimate of a pause. `target` contains the target's own lines, as it sent them.
[[nodiscard]] PauseEstimate estimate_pause(const PauseWork& work, const PauseLines& source,
                                           const PauseLines& target,
                                           const std::optional<wire::PauseFacts>& last);
[[nodiscard]] bool is_done_at_target(PauseTerm term);

// Returns a text with the length, the limit, the longest term and a remedy.
[[nodiscard]] std::string too_long(const wire::PauseFacts& pause, Nanos limit);

// Adds a pause to a node's costs. Terms that `work` does not have are left out.
void learn_pause(PauseCosts& costs, const PauseWork& work, const wire::PauseNumbers& took, bool at_target);

}  // namespace ckpt::agent
