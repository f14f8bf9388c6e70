// SPDX-License-Identifier: Apache-2.0
// The three examples as the bench runs them: their arguments, and how moves of them are taken in pairs.
// Threads: one. Errors: those of the cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/jobs/cluster.h"
#include "tools/bench/report.h"

namespace ckpt::bench {

// The state changes by `hot_percent` of its 4 KiB pages each step, a fixed random set of runs (hotset
// --pattern random).
Arguments hotset_arguments(std::uint64_t bytes, const std::string& hot_percent);
// A quarter of the state is the cache, which each request appends to.
Arguments serve_arguments(std::uint64_t bytes);
Arguments charlm_arguments();
// 2 % by each step of 5 ms; its lines have times.
Arguments timed_hotset_arguments(std::uint64_t bytes);

// A live move and one by stop-and-copy of the same job, one after the other.
struct MovePair {
  Move live;
  Move stop_copy;
};
// Moves a running job twice. Which goes first alternates with `turn`, so that neither kind always has the
// same direction.
Result<MovePair> move_pair(Cluster& cluster, const std::string& job, const Arguments& options, unsigned turn);

// One figure of every move, as a spread.
using Figure = std::function<double(const Move&)>;
std::vector<double> figures_of(const std::vector<Move>& moves, const Figure& figure);
Spread spread_over(const std::vector<Move>& moves, const Figure& figure);
std::vector<Move> live_moves(const std::vector<MovePair>& pairs);
std::vector<Move> stop_copy_moves(const std::vector<MovePair>& pairs);

}  // namespace ckpt::bench
