// SPDX-License-Identifier: Apache-2.0
// A planned or running rebalance as the API shows it (docs/api.md). Texts are places ("node-a:0") and ids. An
// optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/record/fields.h"

namespace ckpt::api {

struct PlannedMove {
  std::string job;
  std::string name;
  std::string from;
  std::string to;
  std::uint64_t needed_bytes = 0;  // the memory that the job needs on any GPU
  std::uint64_t state_bytes = 0;   // the bytes that the move copies
  std::string reason;
};
template <std::same_as<PlannedMove> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("from", &T::from), record::field("to", &T::to),
                        record::field("needed_bytes", &T::needed_bytes),
                        record::field("state_bytes", &T::state_bytes), record::field("reason", &T::reason));
}

// A job that cannot be moved.
struct FixedJob {
  std::string job;
  std::string name;
  std::string reason;
};
template <std::same_as<FixedJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("reason", &T::reason));
}

// The effect of a plan's moves.
struct RebalanceEffect {
  std::vector<std::string> freed;  // the GPUs that have no job after the moves
  std::uint64_t free_before = 0;   // the number of GPUs that have no job and can take work, before the moves
  std::uint64_t free_after = 0;
  bool exhaustive = false;  // whether all plans were compared
  std::vector<FixedJob> fixed;
};
template <std::same_as<RebalanceEffect> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("freed", &T::freed), record::field("free_before", &T::free_before),
                        record::field("free_after", &T::free_after),
                        record::field("exhaustive", &T::exhaustive), record::field("fixed", &T::fixed));
}

struct RebalancePlan {
  bool dry_run = true;
  std::vector<PlannedMove> moves;  // the moves, in their order
  RebalanceEffect effect;
};
template <std::same_as<RebalancePlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("moves", &T::moves),
                        record::inlined(&T::effect));
}

// A move of a rebalance that is being executed.
struct RebalanceMove {
  PlannedMove planned;
  std::string state;                     // the state of the move: waiting, moving, done, failed or left
  std::optional<std::string> migration;  // the id of the migration; set once the migration has begun
  std::optional<std::string> error;
};
template <std::same_as<RebalanceMove> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::planned), record::field("state", &T::state),
                        record::field("migration", &T::migration), record::field("error", &T::error));
}

struct Rebalance {
  std::string state;  // the state of the rebalance: running, done, failed or stopped
  std::uint64_t revision = 0;
  std::uint32_t parallel = 0;  // the number of concurrent moves
  std::vector<RebalanceMove> moves;
  RebalanceEffect effect;
};
template <std::same_as<Rebalance> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("state", &T::state), record::field("revision", &T::revision),
                        record::field("parallel", &T::parallel), record::field("moves", &T::moves),
                        record::inlined(&T::effect));
}

}  // namespace ckpt::api
