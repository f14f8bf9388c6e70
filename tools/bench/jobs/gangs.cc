// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench gangs: ranks that move while all of them run, compared with a job of one rank.
#include <filesystem>
#include <fstream>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"
#include "tools/bench/jobs/steps.h"

namespace ckpt::bench {
namespace {

constexpr int kRanks = 4;
constexpr double kMaxMore = 10;  // the limit for the additional downtime compared with one rank, apart from
                                 // the skew, in milliseconds
constexpr int kSlowInitMs = 5000;
constexpr std::uint64_t kFirstSteps = 20;
const Arguments kTraining = {"--params",   "300000",        "--step-ms", "15",           "--steps",
                             "1000000000", "--print-every", "1",         "--print-times"};

struct Series {
  std::string name;
  std::string ranks;  // the ranks that move, in the form of `migrate --rank`; empty: all
  bool is_slow = false;
  std::vector<RanksMove> moves;
  std::vector<double>
      rates;  // step rate while communicators are made and memory is copied, relative to the steps before
};

// Moves the ranks away and back `pairs` times. Adds the moves and the step rates to `series`.
Result<void> measure(Cluster& cluster, const std::string& job, const std::string& faults, Series& series,
                     unsigned pairs) {
  std::ofstream(faults) << (series.is_slow ? "init-delay " + std::to_string(kSlowInitMs) + "\n"
                                           : std::string());
  for (unsigned turn = 0; turn < 2 * pairs; ++turn) {
    CKPT_TRYV(cluster.wait_for_steps(job + ".0", kFirstSteps));
    CKPT_TRY(move, cluster.move_ranks(job, series.ranks, turn % 2 == 0 ? "node-b" : "node-a"));
    CKPT_TRY(log, cluster.log(job + ".0"));
    CKPT_TRY(phases, cluster.phases());
    const Phases& at = phases[move.id];
    const std::vector<StepLine> steps = parse_steps(log);
    const double before = step_rate(steps, at.begun - 0.2, at.begun);
    const double meanwhile = step_rate(steps, at.begun, at.granted);
    if (before > 0 && meanwhile > 0) series.rates.push_back(meanwhile / before);
    series.moves.push_back(std::move(move));
  }
  return ok();
}

Result<std::vector<double>> pauses_of_one_rank(Cluster& cluster, unsigned pairs) {
  CKPT_TRY(job, cluster.run_job("charlm", kTraining));
  CKPT_TRYV(cluster.wait_for_steps(job, kFirstSteps));
  CKPT_TRYV(cluster.migrate_done(job, {"--live"}));  // not counted, because the movers connect for the first
                                                     // time
  std::vector<double> pauses;
  for (unsigned turn = 0; turn < 2 * pairs; ++turn) {
    CKPT_TRY(move, cluster.migrate_done(job, {"--live"}));
    pauses.push_back(move.downtime_ms);
  }
  CKPT_TRYV(cluster.stop(job));
  return pauses;
}

Spread spread_of_moves(const Series& series, double RanksMove::*figure) {
  std::vector<double> values;
  for (const RanksMove& move : series.moves) values.push_back(move.*figure);
  return spread_of(values);
}

void report_series(Section& section, const Series& series, const Spread& alone) {
  const Spread downtime = spread_of_moves(series, &RanksMove::downtime_ms);
  const Spread skew = spread_of_moves(series, &RanksMove::skew_ms);
  const bool is_all = series.ranks.empty();
  section.add_row(series.name,
                  {downtime, skew, is_all ? Cell() : Cell(spread_of_moves(series, &RanksMove::waited_ms)),
                   spread_of_moves(series, &RanksMove::communicators_ms), spread_of(series.rates)});
  if (series.ranks == "3")
    section.add_goal(series.name + ": pause - (pause alone + skew)",
                     downtime.median - alone.median - skew.median, Relation::kAtMost, kMaxMore, "ms");
}

}  // namespace

Result<void> bench_gangs(const BenchOptions& options, Report& report) {
  Section& section =
      report.add_section("gangs",
                         "Ranks of charlm-dp (4 ranks, 300 k parameters, steps of 15 ms) that move live, to "
                         "another node and back; the longest pause of a rank, and steps while communicators "
                         "are created and memory is copied, compared with the steps before");
  if (!std::filesystem::exists(options.program_folder + "/examples/charlm-dp")) {
    section.skip("charlm-dp was not built: there was no nccl.h");
    return ok();
  }
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes, kRanks));
  if (!cluster->software_gpu()) {
    section.skip("delays can be injected only into the software NCCL");
    return ok();
  }
  section.set_columns({{"pause", "ms"},
                       {"skew", "ms"},
                       {"ranks that stayed", "ms"},
                       {"communicators", "ms"},
                       {"steps meanwhile", ""}});
  CKPT_TRY(alone, pauses_of_one_rank(*cluster, options.pairs));
  section.add_row("charlm, a job of one rank", {spread_of(alone)});
  const std::string faults = cluster->home() + "/nccl-faults";
  std::ofstream(faults).flush();
  CKPT_TRY(job, cluster->run_ranks("charlm-dp", kRanks, {"NCCLSIM_FAULTS=" + faults}, kTraining));
  CKPT_TRYV(cluster->wait_for_steps(job + ".0", kFirstSteps));
  std::vector<Series> all = {{"one rank of 4", "3", false, {}, {}},
                             {"one rank of 4, communicators take 5 s", "3", true, {}, {}},
                             {"two ranks of 4", "2,3", false, {}, {}},
                             {"all 4 ranks", "", false, {}, {}}};
  for (Series& series : all) {
    CKPT_TRYV(measure(*cluster, job, faults, series, options.pairs));
    report_series(section, series, spread_of(alone));
  }
  CKPT_TRYV(cluster->stop(job));
  return ok();
}

}  // namespace ckpt::bench
