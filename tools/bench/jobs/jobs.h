// SPDX-License-Identifier: Apache-2.0
// The three examples as the bench runs them: their arguments, and how their moves are made in pairs.
// Threads: one. Errors: those of the cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/jobs/cluster.h"
#include "tools/bench/report.h"

namespace ckpt::bench {

// Returns arguments with which each step changes `hot_percent` of the state's 4 KiB pages, a fixed random set
// of runs (hotset --pattern random).
Arguments hotset_arguments(std::uint64_t bytes, const std::string& hot_percent);
// Returns arguments for serve. A quarter of the state is its cache, to which each request appends.
Arguments serve_arguments(std::uint64_t bytes);
Arguments charlm_arguments();
// Returns arguments for hotset with steps of 5 ms, each of which changes 2 % of the state. The printed lines
// have times.
Arguments timed_hotset_arguments(std::uint64_t bytes);

// A live move and a stop-and-copy move of the same job, one after the other.
struct MovePair {
  Move live;
  Move stop_copy;
};
// Moves a running job twice. The order alternates with `turn`, so that no kind always has the same direction.
Result<MovePair> move_pair(Cluster& cluster, const std::string& job, const Arguments& options, unsigned turn);

// A function that selects one figure of a move. figures_of() returns this figure of every move, and
// spread_over() returns their spread.
using Figure = std::function<double(const Move&)>;
std::vector<double> figures_of(const std::vector<Move>& moves, const Figure& figure);
Spread spread_over(const std::vector<Move>& moves, const Figure& figure);
std::vector<Move> live_moves(const std::vector<MovePair>& pairs);
std::vector<Move> stop_copy_moves(const std::vector<MovePair>& pairs);

}  // namespace ckpt::bench
