// SPDX-License-Identifier: Apache-2.0
// The states of a rank, and the table of transitions between them. The machine (job_machine.h), the model
// (tests/model/job.pml) and the diagram in docs/architecture.md must agree with the table.
//
// A rank's state follows from its row. An open operation determines it (OperationStage), otherwise JobState
// does. A rank that moves is kRunning, because the journal records its migration.
// Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <span>

#include "coordinator/state/model.h"

namespace ckpt::coordinator::lifecycle {

enum class RankState : std::uint8_t {
  kNone = 0,  // the rank does not exist yet
  kStarting,  // the node must start the rank
  kRunning,
  kParking,      // a snapshot is being taken, after which the rank ends
  kEndingStart,  // the rank's instances end, and then the rank starts from an image
  kEndingRest,   // the rank's instances end, and then the rank is parked in an image
  kComing,       // the node must start the rank from an image
  kParked,       // the rank is parked in an image
  kExited,
  kFailed,
  kLost,
  kGone,  // the rank was removed
};
constexpr auto names_of(record::Of<RankState>) {
  return record::names<RankState>({{RankState::kNone, "-"},
                                   {RankState::kStarting, "Starting"},
                                   {RankState::kRunning, "Running"},
                                   {RankState::kParking, "Parking"},
                                   {RankState::kEndingStart, "EndingStart"},
                                   {RankState::kEndingRest, "EndingRest"},
                                   {RankState::kComing, "Coming"},
                                   {RankState::kParked, "Parked"},
                                   {RankState::kExited, "EndedExited"},
                                   {RankState::kFailed, "EndedFailed"},
                                   {RankState::kLost, "EndedLost"},
                                   {RankState::kGone, "GONE"}});
}
[[nodiscard]] constexpr std::string_view to_string(RankState state) noexcept {
  return record::name_of(state);
}
// Returns whether the rank has ended and no operation restores it.
[[nodiscard]] constexpr bool is_over(RankState state) {
  return state == RankState::kExited || state == RankState::kFailed || state == RankState::kLost;
}

[[nodiscard]] RankState state_of(const Job& rank);

struct Transition {
  RankState from;
  RankState to;
  friend bool operator==(const Transition&, const Transition&) = default;
};
// Returns every pair of different states that one step may pass through.
[[nodiscard]] std::span<const Transition> transitions();
// Returns whether the transition is permitted. A rank may stay in any state.
[[nodiscard]] bool may_go(RankState from, RankState to);

}  // namespace ckpt::coordinator::lifecycle
