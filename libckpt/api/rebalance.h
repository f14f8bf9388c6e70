// SPDX-License-Identifier: Apache-2.0
// A rebalance, planned or under way, as the API shows it (docs/api.md). Texts are places ("node-a:0") and ids. An
// optional member without a value is null.
// Threads: values. Errors: none.
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
  std::uint64_t needed_bytes = 0;  // of memory, wherever it is
  std::uint64_t state_bytes = 0;   // that the move copies
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
  std::vector<std::string> freed;  // GPUs that have no job afterwards
  std::uint64_t free_before = 0;   // GPUs without a job that could take work
  std::uint64_t free_after = 0;
  bool exhaustive = false;  // all plans were compared
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
  std::vector<PlannedMove> moves;  // in order
  RebalanceEffect effect;
};
template <std::same_as<RebalancePlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("moves", &T::moves),
                        record::inlined(&T::effect));
}

// A move of a rebalance that is carried out.
struct RebalanceMove {
  PlannedMove planned;
  std::string state;                     // waiting, moving, done, failed, left
  std::optional<std::string> migration;  // once it has begun
  std::optional<std::string> error;
};
template <std::same_as<RebalanceMove> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::planned), record::field("state", &T::state),
                        record::field("migration", &T::migration), record::field("error", &T::error));
}

struct Rebalance {
  std::string state;  // running, done, failed, stopped
  std::uint64_t revision = 0;
  std::uint32_t parallel = 0;  // moves at a time
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
