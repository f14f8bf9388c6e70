// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/jobs.h"

namespace ckpt::bench {
namespace {

constexpr std::uint64_t kStepsBetweenMoves = 5;
constexpr const char* kStepMs = "20";           // milliseconds of a step of hotset and serve
constexpr const char* kForEver = "1000000000";  // a number of steps that no job completes
constexpr const char* kParameters = "1000000";

}  // namespace

Arguments hotset_arguments(std::uint64_t bytes, const std::string& hot_percent) {
  return {"--bytes",       std::to_string(bytes),
          "--hot",         hot_percent + "%",
          "--pattern",     "random",
          "--step-ms",     kStepMs,
          "--steps",       "0",
          "--print-every", "1"};
}

Arguments serve_arguments(std::uint64_t bytes) {
  return {"--weights",     std::to_string(bytes / 4 * 3),
          "--cache",       std::to_string(bytes / 4),
          "--request-ms",  kStepMs,
          "--requests",    kForEver,
          "--print-every", "1"};
}

Arguments charlm_arguments() {
  return {"--params", kParameters, "--steps", kForEver, "--print-every", "1"};
}

Arguments timed_hotset_arguments(std::uint64_t bytes) {
  return {"--bytes",       std::to_string(bytes),
          "--hot",         "2%",
          "--pattern",     "random",
          "--step-ms",     "5",
          "--steps",       kForEver,
          "--print-every", "1",
          "--print-times"};
}

Result<MovePair> move_pair(Cluster& cluster, const std::string& job, const Arguments& options,
                           unsigned turn) {
  MovePair pair;
  for (unsigned i = 0; i < 2; ++i) {
    const bool live = (i == 0) == (turn % 2 == 0);
    Arguments call = {live ? "--live" : "--stop-copy"};
    call.insert(call.end(), options.begin(), options.end());
    CKPT_TRYV(cluster.wait_for_steps(job, kStepsBetweenMoves));
    CKPT_TRY(move, cluster.migrate_done(job, call));
    (live ? pair.live : pair.stop_copy) = move;
  }
  return pair;
}

std::vector<double> figures_of(const std::vector<Move>& moves, const Figure& figure) {
  std::vector<double> values;
  values.reserve(moves.size());
  for (const Move& move : moves) values.push_back(figure(move));
  return values;
}

Spread spread_over(const std::vector<Move>& moves, const Figure& figure) {
  return spread_of(figures_of(moves, figure));
}

std::vector<Move> live_moves(const std::vector<MovePair>& pairs) {
  std::vector<Move> moves;
  for (const MovePair& pair : pairs) moves.push_back(pair.live);
  return moves;
}

std::vector<Move> stop_copy_moves(const std::vector<MovePair>& pairs) {
  std::vector<Move> moves;
  for (const MovePair& pair : pairs) moves.push_back(pair.stop_copy);
  return moves;
}

}  // namespace ckpt::bench
