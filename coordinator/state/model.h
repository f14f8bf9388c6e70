// SPDX-License-Identifier: Apache-2.0
// The coordinator's records: jobs, migrations, events. Plain values; JobRunner and MigrationRunner change
// them. Times are in Unix milliseconds (for display), and measured spans are in nanoseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/state/doubt.h"
#include "coordinator/state/image_records.h"
#include "coordinator/state/memory_history.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

using wire::Incarnation;
using wire::JobId;
using wire::MigrationId;
using wire::Side;

// A GPU of the cluster. Its text form is "node-a:0".
struct Place {
  Place() = default;
  Place(std::string node_name, std::uint32_t gpu_index) : node(std::move(node_name)), gpu(gpu_index) {}
  friend bool operator==(const Place&, const Place&) = default;
  std::string node;
  std::uint32_t gpu = 0;
};
template <std::same_as<Place> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("gpu", &T::gpu));
}
[[nodiscard]] std::string to_text(const Place& place);

// An instance whose log is part of the job's log. Segments are in the order in which the instances ran.
// `incarnation` is the incarnation as which the instance was started.
struct Segment {
  Segment() = default;
  Segment(std::string node_name, Incarnation started_as)
      : node(std::move(node_name)), incarnation(started_as) {}
  // Returns whether both segments are of the same instance.
  friend bool operator==(const Segment& a, const Segment& b) {
    return a.node == b.node && a.incarnation == b.incarnation;
  }
  std::string node;
  Incarnation incarnation = 0;
  std::string image;         // the image from which the instance was started; empty: none
  std::int64_t lost_ms = 0;  // the work lost since that image, which the log repeats
};
template <std::same_as<Segment> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("incarnation", &T::incarnation),
                        record::later("image", &T::image), record::later("lost_ms", &T::lost_ms));
}

// The state of a job. kParked: the job is parked in an image, and no instance runs. kRestoring: an instance
// is about to run from an image.
enum class JobState : std::uint8_t { kStarting = 1, kRunning, kExited, kFailed, kLost, kParked, kRestoring };
constexpr auto names_of(record::Of<JobState>) {
  return record::names<JobState>({{JobState::kStarting, "starting"},
                                  {JobState::kRunning, "running"},
                                  {JobState::kExited, "exited"},
                                  {JobState::kFailed, "failed"},
                                  {JobState::kLost, "lost"},
                                  {JobState::kParked, "parked"},
                                  {JobState::kRestoring, "restoring"}});
}
[[nodiscard]] constexpr std::string_view to_string(JobState state) noexcept {
  return record::name_of(state);
}
[[nodiscard]] constexpr bool is_ended(JobState state) {
  return state == JobState::kExited || state == JobState::kFailed || state == JobState::kLost;
}
// Returns whether the job has, or is about to have, memory on the GPU of its placement.
[[nodiscard]] constexpr bool holds_gpu(JobState state) {
  return !is_ended(state) && state != JobState::kParked;
}

struct JobRank {
  std::uint32_t rank = 0;
  Place place;
  std::int32_t pid = 0;
  std::uint64_t state_bytes = 0;
};
template <std::same_as<JobRank> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("rank", &T::rank), record::field("place", &T::place),
                        record::field("pid", &T::pid), record::field("state_bytes", &T::state_bytes));
}

struct Job {
  JobId id = 0;
  wire::JobSpec spec;  // name, command, environment, folder, and the ranks of the first placement
  JobState state = JobState::kStarting;
  Incarnation incarnation = 1;    // the running instance's incarnation
  std::vector<Segment> segments;  // the job's instances; the last one runs
  std::vector<JobRank> ranks;     // the ranks of the running instance
  wire::JobPhase phase = wire::JobPhase::kStarting;
  bool movable = false;
  std::int32_t obstacles = -1;  // the number of obstacles to a move to another node, as last counted by the
                                // job's node; negative: not known; not stored
  std::string reason;
  std::string placed;  // the reason why this GPU was chosen
  // The incarnation and port at which the other ranks of a gang connect to its rank 0. An instance that is
  // started a second time listens on the same port.
  Incarnation rendezvous_incarnation = 0;
  std::uint32_t rendezvous_port = 0;
  bool stop_requested = false;  // true until no instance of the job exists, even after the job has ended here
  std::int64_t stop_grace_ms = 0;  // the time from SIGTERM to SIGKILL
  bool unfenced = false;           // the job was lost with its node, where it may still run; no image of it
                                   // may be started
  bool unconfirmed = false;  // the job was taken in on a node's report alone (recovery.h); only a user's
                             // order moves it
  // The nodes that may still have, or start, an abandoned instance. That instance was stopped while its node
  // was disconnected or was starting it. Nothing is started elsewhere before each node has answered
  // (lifecycle/order_rules.h).
  std::set<std::string> unfenced_nodes;
  std::int32_t exit_code = -1;
  bool ended_on_request = false;  // the node terminated the job on request; the job did not exit on its own
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::optional<double> last_downtime_ms;
  std::vector<wire::PauseFacts> pauses;  // the pauses of the last moves, the latest at the end
                                         // (usual_pause.h)
  Incarnation fenced = 0;  // any instance up to this incarnation is ended, because the job continues from an
                           // image
  bool resumes_itself = false;      // kParked: the job resumes as soon as a GPU has the memory
  std::int64_t parked_ms = 0;       // kParked: the time at which the job was parked
  std::int64_t last_active_ms = 0;  // Unix time of the last work, for a job that ended while parked; 0: it
                                    // was not parked
  std::optional<Protection> protection;
  std::optional<SnapshotFacts> snapshot;    // the last successful snapshot
  std::vector<Doubt> doubts;                // doubts that determine which of the job's images are suspect
  std::optional<ImageOperation> operation;  // an open operation, which decides about the instances
  MemoryHistory memory;                     // the memory on the job's GPU, as the driver counts

  [[nodiscard]] const std::string& node() const { return segments.back().node; }
  // Returns the id and the name of the whole job, of which this record is one rank. A job of one rank is its
  // own whole.
  [[nodiscard]] JobId whole() const { return spec.gang.id != 0 ? spec.gang.id : id; }
  [[nodiscard]] const std::string& whole_name() const {
    return spec.gang.id != 0 ? spec.gang.name : spec.name;
  }
  // Returns the job's number among the ranks that were started together, or 0 if it is the only rank.
  [[nodiscard]] std::uint32_t rank_number() const { return ranks.front().rank; }
  // Returns the GPU where this rank runs, or last ran.
  [[nodiscard]] const Place& place() const { return ranks.front().place; }
  // Returns why the rank cannot be moved as a job of its own: other ranks were started with it. Returns an
  // empty string if it is the only rank.
  [[nodiscard]] std::string why_not_alone() const;
  // Returns why only an order of a user may move or park the job, or an empty string if automatic moves are
  // permitted.
  [[nodiscard]] std::string why_not_by_itself() const;
  // Returns when a job that does not run did its last work, in Unix time. An older image lacks some of the
  // work.
  [[nodiscard]] std::int64_t last_work_ms() const { return last_active_ms != 0 ? last_active_ms : ended_ms; }
  [[nodiscard]] std::uint64_t state_bytes() const;
  // Returns the memory that the job uses on its GPU, as far as known.
  [[nodiscard]] std::uint64_t held_bytes() const;
  // Returns the memory that the job is expected to need on any GPU: its quota, otherwise the most that it
  // ever used.
  [[nodiscard]] std::uint64_t expected_bytes() const;
};
// The fields that the store records. The id and the spec have columns of their own.
template <std::same_as<Job> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::not_kept(&T::id), record::not_kept(&T::spec), record::field("state", &T::state),
      record::field("incarnation", &T::incarnation), record::field("segments", &T::segments),
      record::field("ranks", &T::ranks), record::field("phase", &T::phase),
      record::field("movable", &T::movable), record::not_kept(&T::obstacles),
      record::field("reason", &T::reason), record::field("placed", &T::placed),
      record::later("meets_as", &T::rendezvous_incarnation),
      record::later("meets_at_port", &T::rendezvous_port),
      record::field("stop_requested", &T::stop_requested), record::later("stop_grace_ms", &T::stop_grace_ms),
      record::later("unfenced", &T::unfenced), record::later("unconfirmed", &T::unconfirmed),
      record::later("may_live_on", &T::unfenced_nodes), record::field("exit_code", &T::exit_code),
      record::later("ended_as_told", &T::ended_on_request), record::field("started_ms", &T::started_ms),
      record::field("ended_ms", &T::ended_ms), record::later("last_downtime_ms", &T::last_downtime_ms),
      record::later("pauses", &T::pauses), record::later("fenced", &T::fenced),
      record::later("resumes_itself", &T::resumes_itself), record::later("parked_ms", &T::parked_ms),
      record::later("rested_ms", &T::last_active_ms), record::later("protection", &T::protection),
      record::later("snapshot", &T::snapshot), record::later("doubts", &T::doubts),
      record::later("operation", &T::operation), record::later("memory", &T::memory));
}

enum class MigrationPhase : std::uint8_t {
  kPreparing = 1,
  kPrecopy,
  kGranted,
  kVerified,
  kCommitted,
  kClosing,  // decided, and waiting for the sides' measurements
  kClosed,
};
constexpr auto names_of(record::Of<MigrationPhase>) {
  return record::names<MigrationPhase>({{MigrationPhase::kPreparing, "preparing"},
                                        {MigrationPhase::kPrecopy, "precopy"},
                                        {MigrationPhase::kGranted, "granted"},
                                        {MigrationPhase::kVerified, "verified"},
                                        {MigrationPhase::kCommitted, "committed"},
                                        {MigrationPhase::kClosing, "closing"},
                                        {MigrationPhase::kClosed, "closed"}});
}
[[nodiscard]] constexpr std::string_view to_string(MigrationPhase phase) noexcept {
  return record::name_of(phase);
}

enum class MigrationResult : std::uint8_t {
  kNone = 0,
  kDone,
  kFailed,
  kTimedOut,
  kInterrupted,
  kRestored,
  kLost,
  kRefused
};
constexpr auto names_of(record::Of<MigrationResult>) {
  return record::names<MigrationResult>({{MigrationResult::kNone, "none"},
                                         {MigrationResult::kDone, "done"},
                                         {MigrationResult::kFailed, "failed"},
                                         {MigrationResult::kTimedOut, "timed-out"},
                                         {MigrationResult::kInterrupted, "interrupted"},
                                         {MigrationResult::kRestored, "restored"},
                                         {MigrationResult::kLost, "lost"},
                                         {MigrationResult::kRefused, "refused"}});
}
[[nodiscard]] constexpr std::string_view to_string(MigrationResult result) noexcept {
  return record::name_of(result);
}
[[nodiscard]] int exit_code_of(MigrationResult result) noexcept;

// The cause of an abort. kTarget: the target accepts no job any more.
enum class AbortCause : std::uint8_t { kNone = 0, kUser, kTimeout, kTarget };
constexpr auto names_of(record::Of<AbortCause>) {
  return record::names<AbortCause>({{AbortCause::kNone, "none"},
                                    {AbortCause::kUser, "user"},
                                    {AbortCause::kTimeout, "timeout"},
                                    {AbortCause::kTarget, "target"}});
}

// The times of a rank that stayed while other ranks moved. `pause_ms` is its pause. `groups_ms` is the time
// for making communicators while the rank computed. `to_barrier_ms` is the time from the order to stop at a
// barrier until the rank reached it.
struct StayingRankTimes {
  std::uint32_t rank = 0;
  double pause_ms = 0;
  double groups_ms = 0;
  double to_barrier_ms = 0;
};
template <std::same_as<StayingRankTimes> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("rank", &T::rank), record::field("pause_ms", &T::pause_ms),
                        record::field("groups_ms", &T::groups_ms),
                        record::later("to_barrier_ms", &T::to_barrier_ms));
}

struct Migration {
  MigrationId id = 0;
  JobId job = 0;
  MigrationId gang_move = 0;  // the common move of ranks that move together; 0: none
  std::string job_name;
  Place from;
  Place to;
  wire::MigrateOptions options;
  std::int64_t timeout_ms = 0;
  double expected_pause_ms = 0;  // the pause expected before the migration began (expected_pause.h); 0: not
                                 // known
  std::string reason;            // the text of the user's --reason
  std::string network;           // the network that the migration uses (wire::DataNetwork); empty: not known
  std::string transport;
  MigrationPhase phase = MigrationPhase::kPreparing;
  MigrationResult result = MigrationResult::kNone;
  std::string error;
  AbortCause abort_cause = AbortCause::kNone;
  Incarnation base = 0;         // the source's incarnation at the begin
  Incarnation incarnation = 0;  // the running instance's incarnation, as far as known
  Side runs_at = Side::kSource;
  bool ran_at_target = false;  // RUNS was received; the work at the target is lost if the source continues
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::optional<wire::MigrationProgress> progress;
  std::optional<wire::SourceReport> source_report;
  std::optional<wire::TargetReport> target_report;
  std::vector<StayingRankTimes> staying;  // the times of the ranks that stayed; only in the migration of a
                                          // move's first rank
  std::optional<double> skew_ms;  // only in the migration of a move's first rank: the time between the first
                                  // and the last rank at the common barrier
  std::uint64_t revision = 1;
  bool settled = false;    // both sides know how the migration ended, so neither will query it again
  bool forgotten = false;  // no record of the migration exists; its sides are queried, and their records
                           // decide

  [[nodiscard]] bool open() const { return phase != MigrationPhase::kClosed; }
};
// The fields that the store records. The id and the reports have columns of their own.
template <std::same_as<Migration> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::not_kept(&T::id), record::field("job", &T::job), record::later("gang_move", &T::gang_move),
      record::field("job_name", &T::job_name), record::field("from", &T::from), record::field("to", &T::to),
      record::inlined(&T::options), record::field("timeout_ms", &T::timeout_ms),
      record::later("expected_pause_ms", &T::expected_pause_ms), record::field("why", &T::reason),
      record::later("network", &T::network), record::later("transport", &T::transport),
      record::field("phase", &T::phase), record::field("result", &T::result),
      record::field("error", &T::error), record::field("abort_cause", &T::abort_cause),
      record::field("base", &T::base), record::field("incarnation", &T::incarnation),
      record::field("runs_at", &T::runs_at), record::later("ran_at_target", &T::ran_at_target),
      record::field("started_ms", &T::started_ms), record::field("ended_ms", &T::ended_ms),
      record::not_kept(&T::progress), record::not_kept(&T::source_report),
      record::not_kept(&T::target_report), record::later("staying", &T::staying),
      record::later("skew_ms", &T::skew_ms), record::field("revision", &T::revision),
      record::later("settled", &T::settled), record::not_kept(&T::forgotten));
}
// Returns the name of the phase, or "forgotten" while the migration's sides are queried.
[[nodiscard]] std::string_view state_text(const Migration& migration) noexcept;

struct Event {
  std::uint64_t id = 0;
  std::int64_t time_ms = 0;
  std::string kind;
  JobId job = 0;
  MigrationId migration = 0;
  std::string node;
  std::string text;
};

// A filter of events.
struct EventQuery {
  std::uint64_t since = 0;  // only events with higher ids
  std::size_t limit = 0;
  std::optional<JobId> job;
  std::vector<std::string> kinds;  // the kinds to include; empty: all
  std::int64_t since_ms = 0;       // Unix time of the earliest event; 0: all
};

// These functions convert ids to and from text: "j12-k3fa" / "m7-k3fa", or without a tag
// (libckpt/protocol/wire/ids.h). Other text yields nullopt.
[[nodiscard]] std::string job_text(JobId id);
[[nodiscard]] std::string migration_text(MigrationId id);
[[nodiscard]] std::optional<JobId> parse_job_id(std::string_view text);
[[nodiscard]] std::optional<MigrationId> parse_migration_id(std::string_view text);
// These functions return the names of a job and of a migration for messages: "NAME (j12)" and "m7 of NAME".
[[nodiscard]] std::string label(const Job& job);
[[nodiscard]] std::string label(const Migration& migration);
[[nodiscard]] bool valid_job_name(std::string_view name);

}  // namespace ckpt::coordinator
