// SPDX-License-Identifier: Apache-2.0
// The length of a pause, before it, and the reason why it is too long. A migration mode lists the work that
// the pause has to do (PauseWork, mode.h). A term that the copy of device memory does not decide comes from
// the job's last pause in the same mode. Else it comes from the lines of the node that does the work.
// Threads: values. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "agent/pauses/pause_costs.h"

namespace ckpt::agent {

// Adds a term; terms that are not part of the mode stay out.
class PauseWork {
 public:
  struct Part {
    bool on = false;
    std::uint64_t bytes = 0;  // with which the term grows
    Nanos items = 0;          // time for threads, descriptors and the like, on a common server
    Nanos known = 0;          // other time, beside the line
  };
  explicit PauseWork(PauseKind kind) : kind_(kind) {}
  PauseWork& add(PauseTerm term, std::uint64_t bytes = 0, Nanos items = 0, Nanos known = 0) {
    parts_[static_cast<std::size_t>(term)] = {true, bytes, items, known};
    return *this;
  }
  // Context and process are saved while device memory is copied; the longer of both counts.
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
  wire::PauseFacts facts;  // without the copy of device memory
  Nanos beside = 0;        // the part of it that runs beside that copy
  [[nodiscard]] Nanos total() const { return facts.ns.total(); }
  [[nodiscard]] Nanos fixed() const { return total() - beside; }
  // `whole` is the pause with the copy, reported by a mover that had the estimate `told`. Returns this
  // estimate with that copy. Nothing is known of a copy that was shorter than `told.beside`.
  [[nodiscard]] wire::PauseFacts with_copy(Nanos whole, const PauseEstimate& told) const;
};

// `target`: its own lines, as it sent them.
[[nodiscard]] PauseEstimate estimate_pause(const PauseWork& work, const PauseLines& source,
                                           const PauseLines& target,
                                           const std::optional<wire::PauseFacts>& last);
[[nodiscard]] bool is_done_at_target(PauseTerm term);

// Returns a text with the length, the limit, the longest term and a remedy.
[[nodiscard]] std::string too_long(const wire::PauseFacts& pause, Nanos limit);

// Teaches a node's costs; terms that `work` does not have are left out.
void learn_pause(PauseCosts& costs, const PauseWork& work, const wire::PauseNumbers& took, bool at_target);

}  // namespace ckpt::agent
