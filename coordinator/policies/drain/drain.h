// SPDX-License-Identifier: Apache-2.0
// A drain: a node or GPU that is being emptied, and the progress of each of its jobs. Plain values and pure
// decision rules; Drains acts on them (drains.h). Times are in Unix milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/scope.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

using DrainId = std::uint64_t;
// These functions convert a drain id to and from text such as "d3". Other text yields nullopt.
[[nodiscard]] std::string drain_text(DrainId id);
[[nodiscard]] std::optional<DrainId> parse_drain_id(std::string_view text);

// The treatment of a job that cannot be moved live.
enum class Fallback : std::uint8_t {
  kLeave = 0,    // the job stays, and is reported
  kRestore = 1,  // the job continues elsewhere from its newest image, and later work is lost
};
constexpr auto names_of(record::Of<Fallback>) {
  return record::names<Fallback>({{Fallback::kLeave, "leave"}, {Fallback::kRestore, "restore"}});
}
[[nodiscard]] constexpr std::string_view to_string(Fallback fallback) noexcept {
  return record::name_of(fallback);
}

enum class DrainJobState : std::uint8_t {
  kWaiting = 1,  // the job waits for its turn, or for an obstacle that may pass
  kMoving,
  kRestoring,
  kMoved,
  kRestored,
  kEnded,    // the job ended on its own, or was stopped
  kBlocked,  // the job has an obstacle that does not pass on its own; checked again while the drain lasts
  kFailed,   // every attempt has failed
  kLeft,     // a user, who wants the job here, aborted its migration
  kLost,
};
constexpr auto names_of(record::Of<DrainJobState>) {
  return record::names<DrainJobState>({{DrainJobState::kWaiting, "waiting"},
                                       {DrainJobState::kMoving, "moving"},
                                       {DrainJobState::kRestoring, "restoring"},
                                       {DrainJobState::kMoved, "moved"},
                                       {DrainJobState::kRestored, "restored"},
                                       {DrainJobState::kEnded, "ended"},
                                       {DrainJobState::kBlocked, "blocked"},
                                       {DrainJobState::kFailed, "failed"},
                                       {DrainJobState::kLeft, "left"},
                                       {DrainJobState::kLost, "lost"}});
}
[[nodiscard]] constexpr std::string_view to_string(DrainJobState state) noexcept {
  return record::name_of(state);
}
[[nodiscard]] constexpr bool is_under_way(DrainJobState state) {
  return state == DrainJobState::kMoving || state == DrainJobState::kRestoring;
}
[[nodiscard]] constexpr bool is_gone(DrainJobState state) {
  return state == DrainJobState::kMoved || state == DrainJobState::kRestored ||
         state == DrainJobState::kEnded || state == DrainJobState::kLost;
}

struct DrainJob {
  friend bool operator==(const DrainJob&, const DrainJob&) = default;
  JobId job = 0;
  std::string name;
  DrainJobState state = DrainJobState::kWaiting;
  std::string reason;                  // the reason of the state, in one line for display
  std::vector<std::string> obstacles;  // why each GPU cannot take the job, if none can
  std::int32_t priority = 0;
  std::uint64_t state_bytes = 0;
  Place from;
  std::optional<Place> to;
  MigrationId migration = 0;  // the job's newest migration
  std::uint32_t attempts = 0;
  bool restore_tried = false;
  std::optional<double> downtime_ms;
};
template <std::same_as<DrainJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("job", &T::job), record::field("name", &T::name), record::field("state", &T::state),
      record::field("reason", &T::reason), record::later("obstacles", &T::obstacles),
      record::field("priority", &T::priority), record::field("state_bytes", &T::state_bytes),
      record::field("from", &T::from), record::later("to", &T::to), record::field("migration", &T::migration),
      record::field("attempts", &T::attempts), record::field("restore_tried", &T::restore_tried),
      record::later("downtime_ms", &T::downtime_ms));
}

enum class DrainResult : std::uint8_t {
  kNone = 0,
  kEmpty,
  kIncomplete,  // a job could not be moved
  kDeadline,
  kCancelled,
};
constexpr auto names_of(record::Of<DrainResult>) {
  return record::names<DrainResult>({{DrainResult::kNone, "none"},
                                     {DrainResult::kEmpty, "empty"},
                                     {DrainResult::kIncomplete, "incomplete"},
                                     {DrainResult::kDeadline, "deadline"},
                                     {DrainResult::kCancelled, "cancelled"}});
}
[[nodiscard]] constexpr std::string_view to_string(DrainResult result) noexcept {
  return record::name_of(result);
}

struct Drain {
  DrainId id = 0;
  Scope scope;
  std::uint32_t parallel = 2;  // the maximum number of simultaneous moves out of the node
  Fallback fallback = Fallback::kLeave;
  std::string reason;
  std::int64_t deadline_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  bool cancelled = false;
  std::string cancel_reason;
  DrainResult result = DrainResult::kNone;
  std::vector<DrainJob> jobs;
  std::uint64_t revision = 1;

  [[nodiscard]] bool open() const { return result == DrainResult::kNone; }
  [[nodiscard]] DrainJob* find(JobId job);
};
// The fields that the store records. The id has a column of its own. Reading throws record::DocumentError,
// which the table catches.
template <std::same_as<Drain> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::not_kept(&T::id), record::inlined(&T::scope), record::field("parallel", &T::parallel),
      record::field("fallback", &T::fallback), record::field("reason", &T::reason),
      record::field("deadline_ms", &T::deadline_ms), record::field("started_ms", &T::started_ms),
      record::field("ended_ms", &T::ended_ms), record::field("cancelled", &T::cancelled),
      record::field("cancel_reason", &T::cancel_reason), record::field("result", &T::result),
      record::field("jobs", &T::jobs), record::field("revision", &T::revision));
}

// Returns the drain as text: "d3 of node-a". drain_reason() is the reason of the moves and restores that the
// drain begins.
[[nodiscard]] std::string drain_label(const Drain& drain);
[[nodiscard]] std::string drain_reason(const Drain& drain);

// The least time that a move gets, even past the deadline.
inline constexpr std::int64_t kShortestMoveMs = 1'000;
inline constexpr std::uint32_t kMaxDrainAttempts = 3;  // the limit for one job, counting migrations that
                                                       // began and failed

// Returns whether `a` moves before `b`. The higher priority moves first. Then the smaller job moves first, so
// that most jobs leave soonest. Then the older job moves first.
[[nodiscard]] bool goes_before(const DrainJob& a, const DrainJob& b);

// Returns the drain's result, or kNone if it does not end now. `coming` means that jobs are on their way to
// the place.
[[nodiscard]] DrainResult result_of(const Drain& drain, bool coming, bool deadline_passed);
// Returns the exit code: 0 if the place is empty, 1 if a job could not be moved, 2 at the deadline or if
// canceled. It is 3 if the place is empty but a restore lost work, and 4 if a job was lost.
[[nodiscard]] int exit_code_of(const Drain& drain);

}  // namespace ckpt::coordinator
