// SPDX-License-Identifier: Apache-2.0
// Jobs that must leave a faulty GPU, one entry for each, and the rules for the next evacuation and the
// circuit breaker. Plain values and pure functions; Evacuations acts on them (evacuations.h). Times are in
// Unix milliseconds.
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
[[nodiscard]] std::string evacuation_text(EvacuationId id);  // returns text such as "e3"

enum class EvacuationState : std::uint8_t {
  kQueued = 1,
  kMoving,     // a live move is in progress
  kRestoring,  // a restore from the newest image is in progress
  kParking,
  kMoved,     // the job was moved, and nothing was lost
  kRestored,  // the job was restored, and the work since the image was lost
  kParked,    // the job is parked until a GPU has the memory
  kGone,      // there was no job left to move
  kLeft,      // the evacuation is not possible, and an operator must decide
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

// A GPU to which a live move has failed, and the reason.
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
  Incarnation incarnation = 0;  // the incarnation that the job's instance was started as; 0: not known
  std::string job_name;
  Place from;
  wire::HealthOutcome outcome = wire::HealthOutcome::kNone;
  bool urgent = true;
  bool leave_node = false;
  bool revive = false;  // true if the fault may have terminated the job
  std::string reason;   // the finding's reason
  EvacuationState state = EvacuationState::kQueued;
  std::string note;  // the progress, the reason for waiting, or the work that was lost
  std::optional<Place> to;
  MigrationId migration = 0;
  std::optional<std::int64_t> lost_ms;
  std::vector<std::int64_t> started_ms;  // the start time of each attempt
  std::vector<FailedTarget> failed;      // the targets of failed live moves
  std::string not_live;                  // why the job is not moved live although its memory can be read
  std::int64_t created_ms = 0;
  std::int64_t ended_ms = 0;

  [[nodiscard]] bool open() const { return !is_over(state); }
};
// The fields that the store records. The id has a column of its own. Reading throws record::DocumentError,
// which the table catches.
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
  std::size_t live_targets = 8;  // the most targets that one evacuation tries live
};

// Returns how long a live move of `bytes` bytes may take: `base_ms` plus their transfer time on a one-gigabit
// link.
[[nodiscard]] std::int64_t live_deadline_ms(std::int64_t base_ms, std::uint64_t bytes);

// Returns the evacuations to start now, best first. Urgent evacuations start up to the limit. Evacuations of
// jobs whose memory can still be read come first, since it may soon become unreadable. Then come restores,
// which lose nothing by waiting. Other evacuations run one after the other, and only while no urgent one
// runs. `waiting` has queued evacuations for which nothing has changed since the last attempt.
[[nodiscard]] std::vector<EvacuationId> next_evacuations(const std::vector<const Evacuation*>& open,
                                                         const std::set<EvacuationId>& waiting,
                                                         const EvacuationLimits& limits);

// Returns the number of evacuations that were started within the window and after `forgiven_ms`.
[[nodiscard]] std::uint32_t recent_starts(const std::vector<const Evacuation*>& all, std::int64_t now_ms,
                                          std::int64_t forgiven_ms, const EvacuationLimits& limits);
// Returns whether one more evacuation would exceed the limit.
[[nodiscard]] bool trips_breaker(std::uint32_t recent, const EvacuationLimits& limits);

// Returns the number of attempts at one job within its window. Failed live moves do not count, because each
// had a different target.
[[nodiscard]] std::uint32_t attempts_of(JobId job, const std::vector<const Evacuation*>& all,
                                        std::int64_t now_ms, const EvacuationLimits& limits);

// Returns the targets that were tried live, with the outcome of each.
[[nodiscard]] std::string failed_text(const Evacuation& evacuation);

// Merges a further finding about a job that is already being evacuated. The more severe verdict applies.
void escalate(Evacuation& evacuation, const Evacuation& further);

}  // namespace ckpt::coordinator
