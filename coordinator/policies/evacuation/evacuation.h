// SPDX-License-Identifier: Apache-2.0
// Jobs that must leave a GPU in trouble, one entry for each, and the rules for the next one and for the
// circuit breaker. Plain values and pure functions; Evacuations acts on them (evacuations.h). Times are Unix
// milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/state/model.h"
#include "libckpt/protocol/wire/health_messages.h"

namespace ckpt::coordinator {

using EvacuationId = std::uint64_t;
[[nodiscard]] std::string evacuation_text(EvacuationId id);  // "e3"

enum class EvacuationState : std::uint8_t {
  kQueued = 1,
  kMoving,     // live
  kRestoring,  // from its newest image
  kParking,
  kMoved,     // nothing was lost
  kRestored,  // work since the image was lost
  kParked,    // rests until a GPU has the memory
  kGone,      // there was nothing to move any more
  kLeft,      // not possible: an operator's matter
};
constexpr auto names_of(record::Of<EvacuationState>) {
  return record::names<EvacuationState>({{EvacuationState::kQueued, "queued"},
                                         {EvacuationState::kMoving, "moving"},
                                         {EvacuationState::kRestoring, "restoring"},
                                         {EvacuationState::kParking, "parking"},
                                         {EvacuationState::kMoved, "moved"},
                                         {EvacuationState::kRestored, "restored"},
                                         {EvacuationState::kParked, "parked"},
                                         {EvacuationState::kGone, "gone"},
                                         {EvacuationState::kLeft, "left"}});
}
[[nodiscard]] constexpr std::string_view to_string(EvacuationState state) noexcept {
  return record::name_of(state);
}
[[nodiscard]] constexpr bool is_over(EvacuationState state) {
  return state >= EvacuationState::kMoved;
}
[[nodiscard]] constexpr bool is_under_way(EvacuationState state) {
  return state > EvacuationState::kQueued && !is_over(state);
}

// A live move to that GPU came to nothing.
struct FailedTarget {
  FailedTarget() = default;
  FailedTarget(Place place, std::string reason) : to(std::move(place)), reason(std::move(reason)) {}
  Place to;
  std::string reason;
};
template <std::same_as<FailedTarget> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("to", &T::to), record::field("why", &T::reason));
}

struct Evacuation {
  EvacuationId id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;  // that its instance was started as; 0: not known
  std::string job_name;
  Place from;
  wire::HealthOutcome outcome = wire::HealthOutcome::kNone;
  bool urgent = true;
  bool leave_node = false;
  bool revive = false;  // it may have ended of the fault
  std::string reason;   // the finding's
  EvacuationState state = EvacuationState::kQueued;
  std::string note;  // its progress, why it waits, the work that was lost
  std::optional<Place> to;
  MigrationId migration = 0;
  std::optional<std::int64_t> lost_ms;
  std::vector<std::int64_t> started_ms;  // each attempt
  std::vector<FailedTarget> failed;      // that were tried live
  std::string not_live;                  // why it is not moved live although its memory can be read
  std::int64_t created_ms = 0;
  std::int64_t ended_ms = 0;

  [[nodiscard]] bool open() const { return !is_over(state); }
};
// The fields that the store keeps; its id has a column of its own. Reading throws record::DocumentError, which the table catches.
template <std::same_as<Evacuation> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::not_kept(&T::id), record::field("job", &T::job), record::later("incarnation", &T::incarnation),
      record::field("job_name", &T::job_name), record::field("from", &T::from),
      record::field("outcome", &T::outcome), record::field("urgent", &T::urgent),
      record::field("leave_node", &T::leave_node), record::field("revive", &T::revive),
      record::field("reason", &T::reason), record::field("state", &T::state), record::field("note", &T::note),
      record::later("to", &T::to), record::field("migration", &T::migration),
      record::later("lost_ms", &T::lost_ms), record::field("started_ms", &T::started_ms),
      record::later("failed", &T::failed), record::later("not_live", &T::not_live),
      record::field("created_ms", &T::created_ms), record::field("ended_ms", &T::ended_ms));
}

struct EvacuationLimits {
  std::uint32_t parallel = 4;
  std::uint32_t breaker_count = 20;
  std::int64_t breaker_window_ms = 600'000;
  std::uint32_t attempts_per_job = 3;
  std::int64_t job_window_ms = 3'600'000;
  std::size_t live_targets = 8;  // that one evacuation tries
};

// How long a live move of so many bytes may take: `base_ms`, and the time that a link of a gigabit a second
// takes for them.
[[nodiscard]] std::int64_t live_deadline_ms(std::int64_t base_ms, std::uint64_t bytes);

// The evacuations to start now, best first. Urgent ones up to the limit: those whose memory can still be read
// first, since it may not be for long; then restores, which lose nothing by waiting. Those that are not
// urgent go one after the other, and only while nothing else does. `waiting`: queued ones for which nothing
// has changed since they were tried.
[[nodiscard]] std::vector<EvacuationId> next_evacuations(const std::vector<const Evacuation*>& open,
                                                         const std::set<EvacuationId>& waiting,
                                                         const EvacuationLimits& limits);

// Evacuations that were started within the window, and after `forgiven_ms`.
[[nodiscard]] std::uint32_t recent_starts(const std::vector<const Evacuation*>& all, std::int64_t now_ms,
                                          std::int64_t forgiven_ms, const EvacuationLimits& limits);
// One more would be too many.
[[nodiscard]] bool trips_breaker(std::uint32_t recent, const EvacuationLimits& limits);

// Attempts at one job within its window. Live moves that came to nothing do not count: each had a target of
// its own.
[[nodiscard]] std::uint32_t attempts_of(JobId job, const std::vector<const Evacuation*>& all,
                                        std::int64_t now_ms, const EvacuationLimits& limits);

// The targets that were tried live, and what came of each.
[[nodiscard]] std::string failed_text(const Evacuation& evacuation);

// A further finding about a job that is on its way out already: the more severe verdict counts.
void escalate(Evacuation& evacuation, const Evacuation& further);

}  // namespace ckpt::coordinator
