// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench slowdown: the step rate of a job without libckpt, idle under libckpt, and while the job is
// copied.
#include <algorithm>
#include <cmath>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"
#include "tools/bench/jobs/steps.h"

namespace ckpt::bench {
namespace {

constexpr double kRunSeconds = 1.0;    // duration of the measured steps
constexpr double kCopySeconds = 1.0;   // duration of the first round, set by its bandwidth limit
constexpr double kLineSeconds = 0.01;  // approximate time per line of the log
constexpr double kWarmUpShare = 0.1;   // the share of the steps that warm the job up and do not count
constexpr double kEver = 1e18;         // later than any time
constexpr std::uint64_t kTrialSteps = 40;
constexpr std::uint64_t kForEver = 1'000'000'000;

struct Program {
  std::string name;
  Arguments arguments;
  std::uint64_t state_bytes = 0;  // approximate size, used to choose a bandwidth
  double steps_per_second = 0;    // the rate of the trial run
};

// Returns the programs to measure. The programs do not pause between steps, so that the whole time of a step
// counts.
std::vector<Program> all_programs(std::uint64_t bytes) {
  const std::uint64_t of_hotset = std::max<std::uint64_t>(bytes / 4, std::uint64_t{4} << 20);
  return {{"hotset",
           {"--bytes", std::to_string(of_hotset), "--hot", "2%", "--pattern", "random", "--step-ms", "0"},
           of_hotset},
          {"charlm", {"--params", "300000"}, std::uint64_t{3} * 4 * 300'000}};
}

Arguments arguments_of(const Program& program, std::uint64_t steps, bool with_ckpt) {
  const double each = std::max(1.0, std::round(program.steps_per_second * kLineSeconds));
  Arguments arguments = program.arguments;
  arguments.insert(arguments.end(), {"--steps", std::to_string(steps), "--print-every",
                                     std::to_string(static_cast<std::uint64_t>(each)), "--print-times"});
  if (!with_ckpt) arguments.emplace_back("--without-ckpt");
  return arguments;
}

// Returns the steps per second of a separate run, from start to end, without the first tenth of its steps.
Result<double> run_alone(Cluster& cluster, const Program& program, std::uint64_t steps, bool with_ckpt) {
  CKPT_TRY(job, cluster.run_job(program.name, arguments_of(program, steps, with_ckpt)));
  CKPT_TRYV(cluster.wait(job));
  CKPT_TRY(log, cluster.log(job));
  std::vector<StepLine> lines = parse_steps(log);
  const auto warm = static_cast<std::uint64_t>(static_cast<double>(steps) * kWarmUpShare);
  std::erase_if(lines, [warm](const StepLine& line) { return line.step < warm; });
  const double rate = step_rate(lines, 0, kEver);
  if (rate <= 0) return Error(ErrorCode::kCorrupt, "The log of " + job + " shows no steps");
  return rate;
}

std::uint64_t steps_for(const Program& program, double seconds) {
  return std::max<std::uint64_t>(kTrialSteps, static_cast<std::uint64_t>(program.steps_per_second * seconds));
}

// Returns the steps per second while a live move stays in pre-copy. The pre-copy is one long round, so that
// the pause at its end has little effect.
Result<double> run_copied(Cluster& cluster, const Program& program, const Arguments& more) {
  CKPT_TRY(job, cluster.run_job(program.name, arguments_of(program, kForEver, true)));
  CKPT_TRYV(cluster.wait_for_steps(job, steps_for(program, kRunSeconds * kWarmUpShare)));
  const double bandwidth = static_cast<double>(program.state_bytes) / kCopySeconds;
  Arguments options = {"--live", "--max-rounds", "1", "--bandwidth",
                       std::to_string(static_cast<std::uint64_t>(bandwidth)) + "B/s"};
  options.insert(options.end(), more.begin(), more.end());
  CKPT_TRY(move, cluster.migrate(job, options));
  CKPT_TRYV(cluster.stop(job));
  CKPT_TRY(log, cluster.log(job));
  CKPT_TRY(phases, cluster.phases());
  const Phases& times = phases[move.id];
  const double rate = times.precopy == 0 ? 0 : step_rate(parse_steps(log), times.precopy, times.ended);
  if (rate <= 0)
    return Error(ErrorCode::kCorrupt,
                 "The log of " + job + " shows no steps during " + move.id + " (" + move.result + ")");
  return rate;
}

struct Rates {
  std::vector<double> without, idle, copied, slowed;
};

// Measures the program once in each of the four ways. The order alternates with `turn`.
Result<void> one_turn(Cluster& cluster, const Program& program, unsigned turn, Rates& rates) {
  const std::uint64_t steps = steps_for(program, kRunSeconds);
  for (unsigned i = 0; i < 4; ++i) {
    switch (turn % 2 == 0 ? i : 3 - i) {
      case 0: {
        CKPT_TRY(rate, run_alone(cluster, program, steps, false));
        rates.without.push_back(rate);
        break;
      }
      case 1: {
        CKPT_TRY(rate, run_alone(cluster, program, steps, true));
        rates.idle.push_back(rate);
        break;
      }
      case 2: {
        CKPT_TRY(rate, run_copied(cluster, program, {}));
        rates.copied.push_back(rate);
        break;
      }
      default: {
        CKPT_TRY(rate, run_copied(cluster, program, {"--slowdown", "3%"}));
        rates.slowed.push_back(rate);
        break;
      }
    }
  }
  return ok();
}

void add_rows(Section& section, const std::string& name, const Rates& rates) {
  const auto add = [&](const std::string& kind, const std::vector<double>& these) {
    section.add_row(name + ", " + kind, {spread_of(these), spread_of(ratios_of(these, rates.without))});
  };
  add("without libckpt", rates.without);
  add("idle under libckpt", rates.idle);
  add("while copied", rates.copied);
  add("while copied, --slowdown 3%", rates.slowed);
}

}  // namespace

Result<void> bench_slowdown(const BenchOptions& options, Report& report) {
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  std::vector<Rates> all;
  std::vector<Program> programs = all_programs(options.bytes);
  for (Program& program : programs) {
    CKPT_TRY(trial, run_alone(*cluster, program, kTrialSteps, false));
    program.steps_per_second = trial;
    Rates rates;
    for (unsigned turn = 0; turn < options.pairs; ++turn) {
      CKPT_TRYV(one_turn(*cluster, program, turn, rates));
    }
    all.push_back(std::move(rates));
  }
  const bool software = cluster->software_gpu();
  Section& section = report.add_section(
      "slowdown", std::string("Step rates of jobs that do nothing else: hotset (") +
                      std::to_string(programs[0].state_bytes >> 20) +
                      " MiB) and charlm (300 k parameters), without libckpt, idle under "
                      "it, and in the pre-copy of a live move that is "
                      "limited to the state's size per second" +
                      (software ? "; here a software GPU, the movers and the link share the same processor "
                                  "cores, so a copy slows the job more than on a GPU"
                                : ""));
  section.set_columns({{"steps", "1/s"}, {"of the rate without libckpt", ""}});
  for (std::size_t i = 0; i < programs.size(); ++i) add_rows(section, programs[i].name, all[i]);
  return ok();
}

}  // namespace ckpt::bench
