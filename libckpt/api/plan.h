// SPDX-License-Identifier: Apache-2.0
// Dry runs and obstacles as the API shows them (docs/api.md). Texts are ids and places ("node-a:0"); `_ms`
// are milliseconds. An optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/api/job.h"
#include "libckpt/api/migration.h"
#include "libckpt/record/fields.h"

namespace ckpt::api {

// A GPU that placement has considered.
struct Candidate {
  std::string node;
  std::uint32_t gpu = 0;
  bool suitable = false;
  std::optional<double> score;       // the score of the GPU; null for an unsuitable GPU
  std::optional<std::string> cause;  // the first objection to the GPU in one or two words; null for a
                                     // suitable GPU
  std::vector<std::string> reasons;  // the terms of the score; for an unsuitable GPU, every objection
};
template <std::same_as<Candidate> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("gpu", &T::gpu),
                        record::field("suitable", &T::suitable), record::field("score", &T::score),
                        record::field("cause", &T::cause), record::field("reasons", &T::reasons));
}

// A job that makes space for another job.
struct Displacement {
  std::string job;
  std::string name;
  std::int32_t priority = 0;
  std::string from;
  std::optional<std::string> to;  // the place to which the job moves; null if the job is parked
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

// A start that was only planned. Nothing was started.
struct RunPlan {
  bool dry_run = true;
  std::optional<std::string> name;
  std::optional<std::string> to;    // the places of the job, separated by ", "; null if the start is not
                                    // possible
  std::vector<std::string> places;  // the places of the job, in the order of its ranks
  std::uint64_t gpu_memory_bytes = 0;
  std::vector<Displacement> displaced;
  bool possible = false;
  std::optional<std::string> reason;  // the reason why the start is not possible; null if it is possible
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

// A move that was only planned. Nothing was moved.
struct MovePlan {
  bool dry_run = true;
  std::string job;
  std::string job_name;
  std::vector<std::uint32_t> ranks;  // the ranks that move
  std::uint64_t size = 0;            // the number of ranks that the job was started with
  std::string from;                  // the places of these ranks, separated by commas
  std::optional<std::string> to;     // the places to which the ranks move; null if the move is not possible
  std::string strategy;
  MigrateOptions options;
  std::uint64_t state_bytes = 0;
  std::optional<double> expected_pause_ms;
  std::optional<std::string> expected_pause_from;  // the source of the expectation: last_move or estimate
  bool possible = false;
  std::optional<std::string> reason;  // the reason why the move is not possible; null if it is possible
  std::vector<std::string> warnings;
  std::vector<Candidate> candidates;
};
template <std::same_as<MovePlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("job", &T::job),
                        record::field("job_name", &T::job_name), record::field("ranks", &T::ranks),
                        record::field("size", &T::size), record::field("from", &T::from),
                        record::field("to", &T::to), record::field("strategy", &T::strategy),
                        record::field("options", &T::options), record::field("state_bytes", &T::state_bytes),
                        record::field("expected_pause_ms", &T::expected_pause_ms),
                        record::field("expected_pause_from", &T::expected_pause_from),
                        record::field("possible", &T::possible), record::field("reason", &T::reason),
                        record::field("warnings", &T::warnings), record::field("candidates", &T::candidates));
}

// A kind of move, and whether a running job can make it.
struct Movability {
  bool possible = false;
  std::optional<std::string> reason;  // the reason why the move is not possible: obstacles, separated by ";
                                      // "; null if it is possible
};
template <std::same_as<Movability> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("possible", &T::possible), record::field("reason", &T::reason));
}

// Another node, with its answer to whether it would accept the job.
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

// All obstacles that prevent a running job from moving.
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
