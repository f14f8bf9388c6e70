// SPDX-License-Identifier: Apache-2.0
// Findings about GPUs, the moves because of findings, and the policy for these moves, as the API shows them
// (docs/api.md). Texts are places ("node-a:0"), ids and times (RFC 3339, UTC). An optional member without a
// value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/record/fields.h"

namespace ckpt::api {

// The outcome of a finding for one job of its GPU.
struct JobVerdict {
  std::string job;
  std::string outcome;  // the outcome for the job: none, live or restore
  std::optional<std::string> reason;
};
template <std::same_as<JobVerdict> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("outcome", &T::outcome),
                        record::field("reason", &T::reason));
}

// An agent's report about a GPU.
struct Finding {
  std::string node;
  std::uint64_t number = 0;  // a number that increases with every finding of the node
  std::string time;
  std::uint32_t gpu = 0;
  std::optional<std::string> gpu_uuid;
  std::string source;  // the source of the finding: nvml, kernel-log, recovery-action, watchdog, probe or
                       // inventory
  std::optional<std::uint32_t> xid;
  std::uint32_t recovery = 0;  // the value of NVML's field for the recovery action
  bool cordon = false;
  bool paused = false;  // whether the policy of the node was paused, so that the finding causes no action
  bool urgent = false;
  bool leave_node = false;
  std::string outcome;  // the outcome for jobs that `jobs` does not name
  std::optional<std::string> reason;
  std::vector<JobVerdict> jobs;
};
template <std::same_as<Finding> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("number", &T::number),
                        record::field("time", &T::time), record::field("gpu", &T::gpu),
                        record::field("gpu_uuid", &T::gpu_uuid), record::field("source", &T::source),
                        record::field("xid", &T::xid), record::field("recovery", &T::recovery),
                        record::field("cordon", &T::cordon), record::field("paused", &T::paused),
                        record::field("urgent", &T::urgent), record::field("leave_node", &T::leave_node),
                        record::field("outcome", &T::outcome), record::field("reason", &T::reason),
                        record::field("jobs", &T::jobs));
}

// A job that leaves a GPU in trouble.
struct Evacuation {
  std::string id;
  std::string job;
  std::string job_name;
  std::string state;
  bool open = false;
  std::string outcome;  // the outcome of the finding: live or restore
  bool urgent = false;
  std::string from;
  std::optional<std::string> to;
  std::optional<std::string> migration;
  std::uint64_t attempts = 0;
  std::optional<std::int64_t> lost_ms;  // the duration of the lost work
  std::string created;
  std::optional<std::string> ended;
  std::optional<std::string> reason;
  std::optional<std::string> note;
};
template <std::same_as<Evacuation> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("id", &T::id), record::field("job", &T::job),
                        record::field("job_name", &T::job_name), record::field("state", &T::state),
                        record::field("open", &T::open), record::field("outcome", &T::outcome),
                        record::field("urgent", &T::urgent), record::field("from", &T::from),
                        record::field("to", &T::to), record::field("migration", &T::migration),
                        record::field("attempts", &T::attempts), record::field("lost_ms", &T::lost_ms),
                        record::field("created", &T::created), record::field("ended", &T::ended),
                        record::field("reason", &T::reason), record::field("note", &T::note));
}

// The circuit breaker: it stops automatic moves when there are too many.
struct Breaker {
  bool open = false;
  std::optional<std::string> since;
  std::optional<std::string> reason;
  std::uint32_t recent = 0;  // the number of automatic moves within the breaker's time window
  std::uint32_t limit = 0;
  std::int64_t window_ms = 0;
};
template <std::same_as<Breaker> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("open", &T::open), record::field("since", &T::since),
                        record::field("reason", &T::reason), record::field("recent", &T::recent),
                        record::field("limit", &T::limit), record::field("window_ms", &T::window_ms));
}

// The policy that decides whether jobs are moved because of findings.
struct Policy {
  std::vector<std::string> paused;  // the nodes for which moves are paused
  Breaker breaker;
  std::uint32_t attempts_per_job = 0;
  std::uint32_t parallel = 0;
};
template <std::same_as<Policy> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("paused", &T::paused), record::field("breaker", &T::breaker),
                        record::field("attempts_per_job", &T::attempts_per_job),
                        record::field("parallel", &T::parallel));
}

// The health of the cluster, with the newest evacuations and findings first.
struct Health {
  Policy policy;
  std::vector<Evacuation> evacuations;
  std::vector<Finding> findings;
};
template <std::same_as<Health> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("policy", &T::policy), record::field("evacuations", &T::evacuations),
                        record::field("findings", &T::findings));
}

}  // namespace ckpt::api
