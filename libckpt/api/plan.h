// SPDX-License-Identifier: Apache-2.0
// Dry runs and obstacles as the API shows them (docs/api.md). Texts are ids and places ("node-a:0"); `_ms` are
// milliseconds. An optional member without a value is null.
// Threads: values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/api/job.h"
#include "libckpt/api/migration.h"
#include "libckpt/record/fields.h"

namespace ckpt::api {

// A GPU that placement has looked at.
struct Candidate {
  std::string node;
  std::uint32_t gpu = 0;
  bool suitable = false;
  std::optional<double> score;       // null: unsuitable
  std::optional<std::string> cause;  // its first objection in a word or two; null: suitable
  std::vector<std::string> reasons;  // the terms of the score, or every objection
};
template <std::same_as<Candidate> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("gpu", &T::gpu),
                        record::field("suitable", &T::suitable), record::field("score", &T::score),
                        record::field("cause", &T::cause), record::field("reasons", &T::reasons));
}

// A job that makes place for another one.
struct Displacement {
  std::string job;
  std::string name;
  std::int32_t priority = 0;
  std::string from;
  std::optional<std::string> to;  // null: it is parked
};
template <std::same_as<Displacement> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("priority", &T::priority), record::field("from", &T::from),
                        record::field("to", &T::to));
}

// A job that was started.
struct StartedJob {
  Job job;
  std::vector<Displacement> displaced;
};
template <std::same_as<StartedJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::job), record::field("displaced", &T::displaced));
}

// A start that was only planned.
struct RunPlan {
  bool dry_run = true;
  std::optional<std::string> name;
  std::optional<std::string> to;    // places with ", " between them; null: not possible
  std::vector<std::string> places;  // by rank
  std::uint64_t gpu_memory_bytes = 0;
  std::vector<Displacement> displaced;
  bool possible = false;
  std::optional<std::string> reason;  // why it is not
  std::vector<Candidate> candidates;
};
template <std::same_as<RunPlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("name", &T::name),
                        record::field("to", &T::to), record::field("places", &T::places),
                        record::field("gpu_memory_bytes", &T::gpu_memory_bytes),
                        record::field("displaced", &T::displaced), record::field("possible", &T::possible),
                        record::field("reason", &T::reason), record::field("candidates", &T::candidates));
}

// A move that was only planned.
struct MovePlan {
  bool dry_run = true;
  std::string job;
  std::string job_name;
  std::optional<std::vector<std::uint32_t>> ranks;  // that move; null for a job of one rank
  std::string from;                                 // the places of these ranks, with commas
  std::optional<std::string> to;                    // null: not possible
  std::string strategy;
  MigrateOptions options;
  std::uint64_t state_bytes = 0;
  std::optional<double> expected_pause_ms;
  std::optional<std::string> expected_pause_from;  // last_move, estimate
  bool possible = false;
  std::optional<std::string> reason;  // why it is not
  std::vector<std::string> warnings;
  std::vector<Candidate> candidates;
};
template <std::same_as<MovePlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("job", &T::job),
                        record::field("job_name", &T::job_name), record::field("ranks", &T::ranks),
                        record::field("from", &T::from), record::field("to", &T::to),
                        record::field("strategy", &T::strategy), record::field("options", &T::options),
                        record::field("state_bytes", &T::state_bytes),
                        record::field("expected_pause_ms", &T::expected_pause_ms),
                        record::field("expected_pause_from", &T::expected_pause_from),
                        record::field("possible", &T::possible), record::field("reason", &T::reason),
                        record::field("warnings", &T::warnings), record::field("candidates", &T::candidates));
}

// A kind of move that a running job can make, or not.
struct Movability {
  bool possible = false;
  std::optional<std::string> reason;  // why not: obstacles with "; " between them
};
template <std::same_as<Movability> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("possible", &T::possible), record::field("reason", &T::reason));
}

// Another node, asked whether it takes the job.
struct TargetMovability {
  Movability movability;
  std::string node;
};
template <std::same_as<TargetMovability> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::movability), record::field("node", &T::node));
}

struct MovabilityBetweenNodes {
  Movability movability;
  std::vector<TargetMovability> targets;
};
template <std::same_as<MovabilityBetweenNodes> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::movability), record::field("targets", &T::targets));
}

// Everything that keeps a running job from moving.
struct Obstacles {
  std::string job;
  std::string name;
  std::string at;
  Movability within_node;
  MovabilityBetweenNodes between_nodes;
};
template <std::same_as<Obstacles> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("at", &T::at), record::field("within_node", &T::within_node),
                        record::field("between_nodes", &T::between_nodes));
}

}  // namespace ckpt::api
