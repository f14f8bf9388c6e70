// SPDX-License-Identifier: Apache-2.0
// Drains and the answer of uncordon as the API shows them (docs/api.md). Texts are places ("node-a:0"), ids
// and times (RFC 3339, UTC). An optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/api/node.h"
#include "libckpt/record/fields.h"

namespace ckpt::api {

// A GPU whose findings were forgiven because the operator requested it.
struct ForgivenGpu {
  std::string place;
  std::optional<std::string> reason;  // the finding's reason
};
template <std::same_as<ForgivenGpu> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("place", &T::place), record::field("reason", &T::reason));
}

// A GPU that takes no new job at present because of a finding.
struct SuspectGpu {
  GpuFault fault;
  std::string place;
};
template <std::same_as<SuspectGpu> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::fault), record::field("place", &T::place));
}

// The answer to a request to uncordon a place.
struct Uncordoned {
  std::string place;
  std::vector<Cordon> cleared;  // the cordons that were removed
  std::vector<Cordon> left;     // the cordons that remain on the same place, or on GPUs of the node
  std::vector<ForgivenGpu> forgiven;
  std::vector<SuspectGpu> suspect;
};
template <std::same_as<Uncordoned> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("place", &T::place), record::field("cleared", &T::cleared),
                        record::field("left", &T::left), record::field("forgiven", &T::forgiven),
                        record::field("suspect", &T::suspect));
}

// A job that a drain moves away.
struct DrainJob {
  std::string job;
  std::string name;
  std::string state;  // the state of the move: waiting, moving, restoring, moved, restored, ended, blocked,
                      // failed, left or lost
  std::int32_t priority = 0;
  std::uint64_t state_bytes = 0;
  std::string from;
  std::optional<std::string> to;
  std::optional<std::string> migration;  // the newest migration of the job
  std::uint32_t attempts = 0;
  std::optional<double> downtime_ms;
  std::optional<std::string> reason;
  std::vector<std::string> obstacles;  // the objection against each GPU, if no GPU can take the job
};
template <std::same_as<DrainJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("job", &T::job), record::field("name", &T::name), record::field("state", &T::state),
      record::field("priority", &T::priority), record::field("state_bytes", &T::state_bytes),
      record::field("from", &T::from), record::field("to", &T::to), record::field("migration", &T::migration),
      record::field("attempts", &T::attempts), record::field("downtime_ms", &T::downtime_ms),
      record::field("reason", &T::reason), record::field("obstacles", &T::obstacles));
}

struct Drain {
  std::string id;
  std::uint64_t revision = 0;
  std::string place;
  bool open = false;
  std::uint32_t parallel = 0;  // the number of concurrent moves out of the node
  std::string fallback;        // the action for a job that cannot be moved: leave or restore
  std::optional<std::string> reason;
  std::string started;
  std::string deadline;
  std::optional<std::string> ended;
  std::optional<std::string> cancelled;  // the reason for the cancellation
  std::optional<std::string> result;     // the drain's result; null while the drain is open
  std::optional<int> exit_code;
  std::uint64_t jobs_gone = 0;
  std::vector<DrainJob> jobs;
};
template <std::same_as<Drain> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("id", &T::id), record::field("revision", &T::revision),
                        record::field("place", &T::place), record::field("open", &T::open),
                        record::field("parallel", &T::parallel), record::field("fallback", &T::fallback),
                        record::field("reason", &T::reason), record::field("started", &T::started),
                        record::field("deadline", &T::deadline), record::field("ended", &T::ended),
                        record::field("cancelled", &T::cancelled), record::field("result", &T::result),
                        record::field("exit_code", &T::exit_code), record::field("jobs_gone", &T::jobs_gone),
                        record::field("jobs", &T::jobs));
}

// The answer to a request for a drain.
struct BegunDrain {
  Drain drain;
  bool joined = false;  // a drain of this place was already open; the request joined it, and the drain keeps
                        // its own settings
};
template <std::same_as<BegunDrain> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::drain), record::field("joined", &T::joined));
}

// A job that a drain would move away.
struct DrainPlanJob {
  std::string job;
  std::string name;
  std::int32_t priority = 0;
  std::uint64_t state_bytes = 0;
  std::string from;
  std::optional<std::string> to;
  std::optional<std::string> reason;
  std::vector<std::string> obstacles;
  bool possible = false;
  bool passing = false;                // whether the obstacle may be temporary
  std::optional<std::string> warning;  // a problem of the GPU that the job would leave
  std::optional<double> expected_pause_ms;
  std::optional<std::string> expected_pause_from;  // the source of the expectation: last_move or estimate
};
template <std::same_as<DrainPlanJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("priority", &T::priority),
                        record::field("state_bytes", &T::state_bytes), record::field("from", &T::from),
                        record::field("to", &T::to), record::field("reason", &T::reason),
                        record::field("obstacles", &T::obstacles), record::field("possible", &T::possible),
                        record::field("passing", &T::passing), record::field("warning", &T::warning),
                        record::field("expected_pause_ms", &T::expected_pause_ms),
                        record::field("expected_pause_from", &T::expected_pause_from));
}

// The moves that a drain would make, in the drain's order.
struct DrainPlan {
  bool dry_run = true;
  std::string place;
  std::uint32_t parallel = 0;
  bool possible = false;  // whether all jobs can be moved
  std::vector<DrainPlanJob> jobs;
};
template <std::same_as<DrainPlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("place", &T::place),
                        record::field("parallel", &T::parallel), record::field("possible", &T::possible),
                        record::field("jobs", &T::jobs));
}

}  // namespace ckpt::api
