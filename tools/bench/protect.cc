// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench protect: a snapshot about every second of a job whose state changes by 2 % a step: what it writes, and what it costs the job.
#include <cmath>

#include "tools/bench/bench.h"
#include "tools/bench/jobs.h"
#include "tools/bench/steps.h"

namespace ckpt::bench {
namespace {

constexpr unsigned kSnapshots = 10;  // of one turn
constexpr double kSecondsBetween = 1.0;
constexpr std::uint64_t kTrialSteps = 40;
constexpr double kEver = 1e18;  // later than any time
constexpr double kMostWritten = 1.1;
constexpr double kLeastRate = 0.95;
constexpr double kMiB = 1024.0 * 1024.0;

struct Turn {
  double rate = 0;  // steps per second with snapshots, of the rate without
  std::vector<double> written, pauses, dirty;
};

double last_time(const std::vector<StepLine>& lines) {
  return lines.empty() ? 0 : lines.back().time;
}

Result<std::vector<StepLine>> steps_of(Cluster& cluster, const std::string& job) {
  CKPT_TRY(log, cluster.log(job));
  return parse_steps(log);
}

// One stretch without snapshots, one with them, of the same job.
Result<Turn> one_turn(Cluster& cluster, const std::string& job, std::uint64_t steps_a_second) {
  CKPT_TRY(before, steps_of(cluster, job));
  CKPT_TRYV(cluster.wait_for_steps(job, kSnapshots * steps_a_second));
  CKPT_TRY(between, steps_of(cluster, job));
  Turn turn;
  for (unsigned i = 0; i < kSnapshots; ++i) {
    CKPT_TRY(snapshot, cluster.snapshot(job));
    turn.pauses.push_back(snapshot.pause_ms);
    turn.dirty.push_back(snapshot.dirty_bytes / kMiB);
    if (snapshot.dirty_bytes > 0) turn.written.push_back(snapshot.written_bytes / snapshot.dirty_bytes);
    CKPT_TRYV(cluster.wait_for_steps(
        job, static_cast<std::uint64_t>(kSecondsBetween * static_cast<double>(steps_a_second))));
  }
  CKPT_TRY(after, steps_of(cluster, job));
  const double without = step_rate(after, last_time(before), last_time(between));
  const double with = step_rate(after, last_time(between), kEver);
  if (without <= 0 || with <= 0) return Error(ErrorCode::kCorrupt, "The log of " + job + " shows no steps");
  turn.rate = with / without;
  return turn;
}

}  // namespace

Result<void> bench_protect(const BenchOptions& options, Report& report) {
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  Arguments arguments = {"--bytes",       std::to_string(options.bytes),
                         "--hot",         "2%",
                         "--pattern",     "random",
                         "--step-ms",     "5",
                         "--print-every", "1",
                         "--print-times"};
  arguments.insert(arguments.end(), {"--steps", "1000000000"});
  CKPT_TRY(job, cluster->run_job("hotset", arguments));
  CKPT_TRYV(cluster->wait_for_steps(job, kTrialSteps));
  CKPT_TRY(trial, steps_of(*cluster, job));
  const auto a_second = static_cast<std::uint64_t>(std::max(1.0, std::round(step_rate(trial, 0, kEver))));
  CKPT_TRYV(cluster->snapshot(job));  // not counted: a full one
  std::vector<double> rates, written, pauses, dirty;
  for (unsigned i = 0; i < options.pairs; ++i) {
    CKPT_TRY(turn, one_turn(*cluster, job, a_second));
    rates.push_back(turn.rate);
    written.insert(written.end(), turn.written.begin(), turn.written.end());
    pauses.insert(pauses.end(), turn.pauses.begin(), turn.pauses.end());
    dirty.insert(dirty.end(), turn.dirty.begin(), turn.dirty.end());
  }
  CKPT_TRYV(cluster->stop(job));
  Section& section = report.add_section(
      "protect",
      "hotset of " + std::to_string(options.bytes >> 20) +
          " MiB, 2 % changed by each step of 5 ms, with a snapshot about every second into a folder");
  section.set_columns(
      {{"pause", "ms"}, {"changed", "MiB"}, {"written of changed", ""}, {"step rate of unprotected", ""}});
  section.add_row("snapshots", {spread_of(pauses), spread_of(dirty), spread_of(written), spread_of(rates)});
  section.add_goal("written of changed", spread_of(written).median, Relation::kAtMost, kMostWritten);
  section.add_goal("step rate of unprotected", spread_of(rates).median, Relation::kAtLeast, kLeastRate);
  return ok();
}

}  // namespace ckpt::bench
