// SPDX-License-Identifier: Apache-2.0
// The conclusions that the coordinator of a gang draws from the parties' facts, for every phase.
// Threads: none. Ownership: borrows the state, which outlives it. Errors: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "libckpt/protocol/gang/gang_coordinator.h"

namespace ckpt::gang {

class Judgement {
 public:
  explicit Judgement(const CoordinatorState& state) : s_(state) {}

  template <class Test>
  [[nodiscard]] bool any(Role role, Test test) const {
    return std::any_of(s_.facts.begin(), s_.facts.end(),
                       [&](const auto& entry) { return entry.first.role == role && test(entry.second); });
  }
  template <class Test>
  [[nodiscard]] bool all(Role role, Test test) const {
    return !any(role, [&](const Facts& facts) { return !test(facts); });
  }

  // Returns, for a move that timed out, the earliest step that the ranks had not completed.
  [[nodiscard]] std::string waited_for() const;
  // Returns whether no GO can follow, or a source already knew that.
  [[nodiscard]] bool is_vetoed() const;
  [[nodiscard]] bool is_damaged() const;
  [[nodiscard]] bool lacks_a_source() const;
  [[nodiscard]] bool lacks_a_bystander() const;
  // Returns whether a party currently refuses GO. Without bystanders, returns whether a source currently
  // refuses to release its memory.
  [[nodiscard]] bool is_held_still() const;
  [[nodiscard]] bool excludes_return() const;
  [[nodiscard]] bool is_withdrawn() const;
  [[nodiscard]] bool may_close_for_targets() const;
  // Returns whether neither the old nor the new set of ranks can continue.
  [[nodiscard]] bool needs_image() const;
  // Returns whether no instance can run. RELINQUISHED and FENCED are stated once an instance has ended. The
  // rank of a released source stands at its barrier, and is never resumed.
  [[nodiscard]] bool is_fenced() const;
  [[nodiscard]] bool is_committed() const;
  // Returns the role of the parties that answer WITHDRAW.
  [[nodiscard]] Role withdrawer() const { return s_.info.staying.empty() ? Role::kSource : Role::kBystander; }

 private:
  template <class Phase>
  [[nodiscard]] bool in() const {
    return std::holds_alternative<Phase>(s_.phase);
  }
  template <class Test>
  [[nodiscard]] std::vector<std::uint32_t> ranks_with(Test test) const {
    std::vector<std::uint32_t> ranks;
    for (const auto& [party, facts] : s_.facts) {
      const bool is_named = std::find(ranks.begin(), ranks.end(), party.rank) != ranks.end();
      if (!is_named && test(party, facts)) ranks.push_back(party.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  const CoordinatorState& s_;
};

}  // namespace ckpt::gang
