// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench protect: a job whose state changes by 2 % per step, protected every second. The section
// measures the slowdown of the job and the bytes that snapshots write.
#include <algorithm>
#include <cmath>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"
#include "tools/bench/jobs/steps.h"

namespace ckpt::bench {
namespace {

constexpr std::uint64_t kSecondsOfStretch = 6;
constexpr unsigned kSnapshots = 3;  // manual snapshots of one turn, because protection does not report what
                                    // had changed
constexpr std::uint64_t kTrialSteps = 40;
constexpr double kEver = 1e18;  // later than any time
constexpr double kMaxWritten = 1.1;
constexpr double kMinRate = 0.95;
constexpr double kMiB = 1024.0 * 1024.0;

struct Turn {
  double rate = 0;      // steps per second under protection, relative to the rate without protection
  double a_second = 0;  // images per second
  std::vector<double> written, pauses, dirty;
};

double last_time(const std::vector<StepLine>& lines) {
  return lines.empty() ? 0 : lines.back().time;
}

Result<std::vector<StepLine>> steps_of(Cluster& cluster, const std::string& job) {
  CKPT_TRY(log, cluster.log(job));
  return parse_steps(log);
}

Result<void> take_by_hand(Cluster& cluster, const std::string& job, std::uint64_t steps_a_second,
                          Turn& turn) {
  for (unsigned i = 0; i < kSnapshots; ++i) {
    CKPT_TRY(snapshot, cluster.snapshot(job));
    turn.pauses.push_back(snapshot.pause_ms);
    turn.dirty.push_back(snapshot.dirty_bytes / kMiB);
    if (snapshot.dirty_bytes > 0) turn.written.push_back(snapshot.written_bytes / snapshot.dirty_bytes);
    CKPT_TRYV(cluster.wait_for_steps(job, steps_a_second));
  }
  return ok();
}

// Measures one period without protection, one period with protection, and manual snapshots, all of the same
// job.
Result<Turn> one_turn(Cluster& cluster, const std::string& job, std::uint64_t steps_a_second) {
  CKPT_TRY(before, steps_of(cluster, job));
  CKPT_TRYV(cluster.wait_for_steps(job, kSecondsOfStretch * steps_a_second));
  CKPT_TRY(between, steps_of(cluster, job));
  CKPT_TRY(first, cluster.newest_version(job));
  CKPT_TRYV(cluster.protect(job, "1s"));
  CKPT_TRYV(cluster.wait_for_steps(job, kSecondsOfStretch * steps_a_second));
  CKPT_TRY(last, cluster.newest_version(job));
  CKPT_TRY(after, steps_of(cluster, job));
  CKPT_TRYV(cluster.unprotect(job));
  const double without = step_rate(after, last_time(before), last_time(between));
  const double with = step_rate(after, last_time(between), kEver);
  const double seconds = last_time(after) - last_time(between);
  if (without <= 0 || with <= 0 || seconds <= 0)
    return Error(ErrorCode::kCorrupt, "The log of " + job + " shows no steps");
  Turn turn;
  turn.rate = with / without;
  turn.a_second = static_cast<double>(last - first) / seconds;
  CKPT_TRYV(take_by_hand(cluster, job, steps_a_second, turn));
  return turn;
}

}  // namespace

Result<void> bench_protect(const BenchOptions& options, Report& report) {
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  CKPT_TRY(job, cluster->run_job("hotset", timed_hotset_arguments(options.bytes)));
  CKPT_TRYV(cluster->wait_for_steps(job, kTrialSteps));
  CKPT_TRY(trial, steps_of(*cluster, job));
  const auto a_second = static_cast<std::uint64_t>(std::max(1.0, std::round(step_rate(trial, 0, kEver))));
  CKPT_TRYV(cluster->snapshot(job));  // not counted, because the first snapshot writes the whole state
  std::vector<double> rates, seconds, written, pauses, dirty;
  for (unsigned i = 0; i < options.pairs; ++i) {
    CKPT_TRY(turn, one_turn(*cluster, job, a_second));
    rates.push_back(turn.rate);
    seconds.push_back(turn.a_second);
    written.insert(written.end(), turn.written.begin(), turn.written.end());
    pauses.insert(pauses.end(), turn.pauses.begin(), turn.pauses.end());
    dirty.insert(dirty.end(), turn.dirty.begin(), turn.dirty.end());
  }
  CKPT_TRYV(cluster->stop(job));
  Section& section = report.add_section(
      "protect", "hotset of " + std::to_string(options.bytes >> 20) +
                     " MiB, 2 % changed by each step of 5 ms, protected every second into a folder");
  section.set_columns({{"pause", "ms"},
                       {"changed", "MiB"},
                       {"written of changed", ""},
                       {"step rate of unprotected", ""},
                       {"images", "1/s"}});
  section.add_row("protected", {spread_of(pauses), spread_of(dirty), spread_of(written), spread_of(rates),
                                spread_of(seconds)});
  section.add_goal("written of changed", spread_of(written).median, Relation::kAtMost, kMaxWritten);
  section.add_goal("step rate of unprotected", spread_of(rates).median, Relation::kAtLeast, kMinRate);
  section.add_note("pause, changed and written are measured with manual snapshots between the runs");
  return ok();
}

}  // namespace ckpt::bench
