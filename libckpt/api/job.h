// SPDX-License-Identifier: Apache-2.0
// Jobs of one or several ranks, as the API shows them (docs/api.md). Texts are ids, places ("node-a:0") and
// times (RFC 3339, UTC); `_ms` are milliseconds. An optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/api/command.h"
#include "libckpt/api/migration.h"
#include "libckpt/api/node.h"
#include "libckpt/record/fields.h"

namespace ckpt::api {

// A rank of a job. A job of one rank has itself as its rank. To its node, every rank is a separate job.
struct JobRank {
  std::uint32_t rank = 0;
  std::string node;
  std::uint32_t gpu = 0;
  std::optional<std::int32_t> pid;
  std::uint64_t state_bytes = 0;
  std::string job;  // the id of the rank
  std::string name;
  std::string state;
  std::optional<std::string> silent_node;
  std::optional<int> exit_code;
  std::optional<std::string> reason;
};
template <std::same_as<JobRank> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("rank", &T::rank), record::field("node", &T::node),
                        record::field("gpu", &T::gpu), record::field("pid", &T::pid),
                        record::field("state_bytes", &T::state_bytes), record::field("job", &T::job),
                        record::field("name", &T::name), record::field("state", &T::state),
                        record::field("silent_node", &T::silent_node),
                        record::field("exit_code", &T::exit_code), record::field("reason", &T::reason));
}

struct Protection {
  std::int64_t every_ms = 0;
  std::optional<std::string> to;  // the node or folder that stores the images; null for the node on which the
                                  // job runs
  std::uint32_t keep = 0;
  std::optional<std::string> last_image;
  std::optional<std::int64_t> last_image_age_ms;
  std::optional<double> last_pause_ms;
  std::uint32_t failures = 0;  // the number of consecutive failed snapshots
  std::optional<std::string> last_error;
};
template <std::same_as<Protection> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("every_ms", &T::every_ms), record::field("to", &T::to),
                        record::field("keep", &T::keep), record::field("last_image", &T::last_image),
                        record::field("last_image_age_ms", &T::last_image_age_ms),
                        record::field("last_pause_ms", &T::last_pause_ms),
                        record::field("failures", &T::failures), record::field("last_error", &T::last_error));
}

struct Job {
  std::string id;
  std::string name;
  std::string state;
  std::optional<std::string> silent_node;
  std::optional<std::string> trouble;  // the first unhealthy GPU of the job, with its fault
  std::optional<std::string> node;  // the node of the job; null if the job is parked or runs on several nodes
  std::optional<std::uint32_t> gpu;  // the GPU of the job; null if the job is parked or has several GPUs
  std::vector<JobRank> ranks;
  std::uint64_t incarnation = 0;
  bool unconfirmed = false;  // whether the job was added from its node's report and is not confirmed yet
  std::string mode;          // the migration mode: cooperative, transparent or adopted
  bool movable = false;
  std::optional<std::string> reason;      // the reason why the job is not movable
  std::optional<std::int32_t> obstacles;  // the number of obstacles to a move to another node
  std::uint64_t state_bytes = 0;
  std::int32_t priority = 0;
  std::optional<MemoryHistory> memory;
  std::uint64_t expected_bytes = 0;
  std::optional<std::uint64_t> gpu_memory_bytes;  // the job's memory quota
  std::optional<std::string> started;
  std::optional<double> last_downtime_ms;
  std::optional<int> exit_code;
  std::optional<Protection> protection;
  std::vector<std::string> gpus;  // the places of the job's ranks; empty if the job is parked
  std::uint64_t size = 0;         // the number of ranks that the job was started with
  std::string communicators;      // when new communicators are made: overlap or in-pause
  std::string connections;        // the default for moves to other nodes of a program with TCP connections to
                                  // other programs: refuse or reset
  std::string namespaces;         // none, or own if the job has its own mount, IPC and UTS namespaces
  bool private_tmp = false;       // whether the job also has its own /tmp
};
template <std::same_as<Job> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("id", &T::id), record::field("name", &T::name), record::field("state", &T::state),
      record::field("silent_node", &T::silent_node), record::field("trouble", &T::trouble),
      record::field("node", &T::node), record::field("gpu", &T::gpu), record::field("ranks", &T::ranks),
      record::field("incarnation", &T::incarnation), record::field("unconfirmed", &T::unconfirmed),
      record::field("mode", &T::mode), record::field("movable", &T::movable),
      record::field("reason", &T::reason), record::field("obstacles", &T::obstacles),
      record::field("state_bytes", &T::state_bytes), record::field("priority", &T::priority),
      record::field("memory", &T::memory), record::field("expected_bytes", &T::expected_bytes),
      record::field("gpu_memory_bytes", &T::gpu_memory_bytes), record::field("started", &T::started),
      record::field("last_downtime_ms", &T::last_downtime_ms), record::field("exit_code", &T::exit_code),
      record::field("protection", &T::protection), record::field("gpus", &T::gpus),
      record::field("size", &T::size), record::field("communicators", &T::communicators),
      record::field("connections", &T::connections), record::field("namespaces", &T::namespaces),
      record::field("private_tmp", &T::private_tmp));
}

struct ExpectedPauses {
  std::optional<double> within_node;
  std::optional<double> between_nodes;
};
template <std::same_as<ExpectedPauses> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("within_node", &T::within_node),
                        record::field("between_nodes", &T::between_nodes));
}

// The source of each expected pause: last_move or estimate.
struct PauseSources {
  std::optional<std::string> within_node;
  std::optional<std::string> between_nodes;
};
template <std::same_as<PauseSources> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("within_node", &T::within_node),
                        record::field("between_nodes", &T::between_nodes));
}

struct Snapshot {
  std::string image;
  std::string created;
  std::optional<std::string> suspect;  // the reason why the memory in the snapshot may be wrong
  std::optional<double> pause_ms;
  std::uint64_t new_bytes = 0;
  std::uint64_t waited_bytes = 0;
};
template <std::same_as<Snapshot> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("image", &T::image), record::field("created", &T::created),
                        record::field("suspect", &T::suspect), record::field("pause_ms", &T::pause_ms),
                        record::field("new_bytes", &T::new_bytes),
                        record::field("waited_bytes", &T::waited_bytes));
}

// A job's transition between running and being stored in an image.
struct Operation {
  std::string verb;   // the requested command: suspend, park, restore or resume
  std::string stage;  // the stage of the operation: taking, ending or starting
  std::optional<std::string> why;
  std::optional<std::string> image;
  std::optional<std::string> deadline;
  std::optional<std::string> cancelled;  // the reason for the cancellation
  std::string cancel;                    // the commands that cancel the operation
};
template <std::same_as<Operation> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("verb", &T::verb), record::field("stage", &T::stage),
                        record::field("why", &T::why), record::field("image", &T::image),
                        record::field("deadline", &T::deadline), record::field("cancelled", &T::cancelled),
                        record::field("cancel", &T::cancel));
}

struct Instance {
  std::uint32_t rank = 0;
  std::uint64_t incarnation = 0;
  std::string node;
  std::string role;  // the role of the instance at its start: fresh or standby
  std::string phase;
  std::uint64_t log_bytes = 0;
};
template <std::same_as<Instance> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("rank", &T::rank), record::field("incarnation", &T::incarnation),
                        record::field("node", &T::node), record::field("role", &T::role),
                        record::field("phase", &T::phase), record::field("log_bytes", &T::log_bytes));
}

// A summary of the job's open migration.
struct OpenMigration {
  std::string id;
  std::string state;
  std::string from;
  std::string to;
  std::string strategy;
  MigrateOptions options;
};
template <std::same_as<OpenMigration> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("id", &T::id), record::field("state", &T::state),
                        record::field("from", &T::from), record::field("to", &T::to),
                        record::field("strategy", &T::strategy), record::field("options", &T::options));
}

// The details of one job. Lists do not contain them.
struct JobDetail {
  Job job;
  std::optional<Command> argv;
  std::optional<CommandText> cwd;
  std::optional<std::string> placed;  // the reason why this GPU was chosen
  ExpectedPauses expected_pause_ms;
  PauseSources expected_pause_from;
  std::optional<Snapshot> last_snapshot;
  std::optional<Operation> operation;
  std::vector<Instance> instances;
  std::vector<std::string> migrations;
  std::optional<OpenMigration> open_migration;
};
template <std::same_as<JobDetail> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::inlined(&T::job), record::field("argv", &T::argv), record::field("cwd", &T::cwd),
      record::field("placed", &T::placed), record::field("expected_pause_ms", &T::expected_pause_ms),
      record::field("expected_pause_from", &T::expected_pause_from),
      record::field("last_snapshot", &T::last_snapshot), record::field("operation", &T::operation),
      record::field("instances", &T::instances), record::field("migrations", &T::migrations),
      record::field("open_migration", &T::open_migration));
}

}  // namespace ckpt::api
