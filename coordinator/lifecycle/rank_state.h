// SPDX-License-Identifier: Apache-2.0
// The states of a rank, and the table of transitions between them. The machine (job_machine.h), the model
// (tests/model/job.pml) and the diagram in docs/architecture.md are held to it.
//
// A rank's state follows from its row: an open operation decides (OperationStage), else JobState does. A rank that
// moves is kRunning: the migration's record is the journal's.
// Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <span>

#include "coordinator/state/model.h"

namespace ckpt::coordinator::lifecycle {

enum class RankState : std::uint8_t {
  kNone = 0,  // not there yet
  kStarting,  // its node is to start it
  kRunning,
  kParking,      // a snapshot that it does not go on after is taken
  kEndingStart,  // its instances end; then it starts from an image
  kEndingRest,   // its instances end; then it rests in an image
  kComing,       // its node is to start it from an image
  kParked,       // it rests in an image
  kExited,
  kFailed,
  kLost,
  kGone,  // removed
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
// It has ended, and no operation brings it back.
[[nodiscard]] constexpr bool is_over(RankState state) {
  return state == RankState::kExited || state == RankState::kFailed || state == RankState::kLost;
}

[[nodiscard]] RankState state_of(const Job& rank);

struct Transition {
  RankState from;
  RankState to;
  friend bool operator==(const Transition&, const Transition&) = default;
};
// Every pair of different states that one step may go through.
[[nodiscard]] std::span<const Transition> transitions();
// A rank may stay in each state.
[[nodiscard]] bool may_go(RankState from, RankState to);

}  // namespace ckpt::coordinator::lifecycle
