// SPDX-License-Identifier: Apache-2.0
// A drain: a node or GPU that is being emptied, and the progress of each of its jobs. Plain values and the
// pure rules that decide; Drains acts on them (drains.h). Times are Unix milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/scope.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

using DrainId = std::uint64_t;
// "d3"; nullopt for anything else.
[[nodiscard]] std::string drain_text(DrainId id);
[[nodiscard]] std::optional<DrainId> parse_drain_id(std::string_view text);

// For a job that cannot be moved live.
enum class Fallback : std::uint8_t {
  kLeave = 0,    // it stays, and is reported
  kRestore = 1,  // it goes on elsewhere from its newest image; work since then is lost
};
constexpr auto names_of(record::Of<Fallback>) {
  return record::names<Fallback>({{Fallback::kLeave, "leave"}, {Fallback::kRestore, "restore"}});
}
[[nodiscard]] constexpr std::string_view to_string(Fallback fallback) noexcept {
  return record::name_of(fallback);
}

enum class DrainJobState : std::uint8_t {
  kWaiting = 1,  // for its turn, or for an obstacle that may pass
  kMoving,
  kRestoring,
  kMoved,
  kRestored,
  kEnded,    // by itself, or stopped
  kBlocked,  // for a reason that does not pass by itself; looked at again while the drain lasts
  kFailed,   // every attempt
  kLeft,     // its migration was aborted by a user, who wants it here
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
  std::string reason;                  // one line for people
  std::vector<std::string> obstacles;  // why not each GPU, where none can take it
  std::int32_t priority = 0;
  std::uint64_t state_bytes = 0;
  Place from;
  std::optional<Place> to;
  MigrationId migration = 0;  // the newest
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
  kIncomplete,  // something could not be moved
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
  std::uint32_t parallel = 2;  // moves out of the node at a time
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
// The fields that the store keeps; its id has a column of its own. Reading throws record::DocumentError, which the table catches.
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

// "d3 of node-a": also the reason of the moves and restores that it begins.
[[nodiscard]] std::string drain_label(const Drain& drain);
[[nodiscard]] std::string drain_reason(const Drain& drain);

// A move is given so much time at least, even past the deadline.
inline constexpr std::int64_t kShortestMoveMs = 1'000;
inline constexpr std::uint32_t kMaxDrainAttempts = 3;  // of one job, by migrations that began and failed

// In this order jobs go: the higher priority first, then the smaller, which frees most jobs soonest; then the
// older.
[[nodiscard]] bool goes_before(const DrainJob& a, const DrainJob& b);

// How a drain ends, if it does now; `coming`: jobs are on their way to the place.
[[nodiscard]] DrainResult result_of(const Drain& drain, bool coming, bool deadline_passed);
// 0 empty, 1 something could not be moved, 2 deadline or cancelled, 3 empty, but work was lost by a restore,
// 4 a job was lost.
[[nodiscard]] int exit_code_of(const Drain& drain);

}  // namespace ckpt::coordinator
