// SPDX-License-Identifier: Apache-2.0
// The section "calls". It runs gpumigrate-bench-calls and reads Google Benchmark's report.
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/command.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr Nanos kPatience = 300'000'000'000;
constexpr double kBarrierGoal = 100;  // the goal for a call of the barrier, in nanoseconds
constexpr double kGateGoal = 20;      // the goal for a call through the open gate, in nanoseconds

struct Call {
  const char* benchmark;
  const char* name;
};
constexpr Call kCalls[] = {{"empty_call", "a call into the library that does nothing"},
                           {"barrier/idle", "ckpt_barrier, idle under a keeper"},
                           {"barrier/no_keeper", "ckpt_barrier, outside gpumigrate"},
                           {"driver_call/straight", "cuDriverGetVersion of the driver"},
                           {"driver_call/gated", "the same through the shim's open gate"},
                           {"tensor", "ckpt_tensor and ckpt_drop"},
                           {"allocation", "ckpt_alloc and ckpt_free of 2 MiB"}};

struct CallRuns {
  Runs wall, cpu;  // wall-clock and processor times of a call in nanoseconds
};

// Parses the report. Returns every repetition of every benchmark, by the benchmark's name.
Result<std::map<std::string, CallRuns>> parse(const std::string& text) {
  const auto bad = [] {
    return Error(ErrorCode::kProtocol, "gpumigrate-bench-calls did not print Google Benchmark's JSON");
  };
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("benchmarks") || !document["benchmarks"].is_array())
    return bad();
  std::map<std::string, CallRuns> runs;
  for (const auto& entry : document["benchmarks"]) {
    if (!entry.is_object() || entry.value("run_type", "") != "iteration") continue;
    if (entry.value("time_unit", "") != "ns") return bad();
    CallRuns& one = runs[entry.value("run_name", "")];
    one.wall.push_back(entry.value("real_time", 0.0));
    one.cpu.push_back(entry.value("cpu_time", 0.0));
  }
  return runs;
}

Command command_of(const BenchOptions& options) {
  Command command;
  command.argv = {options.program_folder + "/gpumigrate-bench-calls", "--benchmark_format=json",
                  "--benchmark_repetitions=" + std::to_string(options.pairs),
                  "--benchmark_enable_random_interleaving=true",
                  options.pairs > 1 ? "--benchmark_min_time=0.1" : "--benchmark_min_time=0.01"};
  for (char** entry = environ; *entry != nullptr; ++entry) command.environment.emplace_back(*entry);
  return command;
}

}  // namespace

Result<void> bench_calls(const BenchOptions& options, Report& report) {
  Section& section = report.add_section(
      "calls",
      "Time that the calls of ckpt.h and the shim's gate cost a job while nothing moves (Google "
      "Benchmark, repetitions in random order)");
  section.set_columns({{"time", "ns"}, {"processor time", "ns"}});
  CKPT_TRY(output, run_command(command_of(options), nullptr, kPatience));
  if (output.exit_code != 0)
    return Error(ErrorCode::kAborted, "gpumigrate-bench-calls exited with status " +
                                          std::to_string(output.exit_code) + ": " + output.err);
  CKPT_TRY(runs, parse(output.out));
  for (const Call& call : kCalls) {
    const auto found = runs.find(call.benchmark);
    if (found == runs.end())
      return Error(ErrorCode::kProtocol, std::string("No measurement of ") + call.name);
    section.add_row(call.name, {spread_of(found->second.wall), spread_of(found->second.cpu)});
  }
  section.add_goal("ckpt_barrier, idle", spread_of(runs["barrier/idle"].wall).median, Relation::kAtMost,
                   kBarrierGoal, "ns");
  section.add_goal(
      "the shim's open gate, a call",
      spread_of(runs["driver_call/gated"].wall).median - spread_of(runs["driver_call/straight"].wall).median,
      Relation::kAtMost, kGateGoal, "ns");
  return ok();
}

}  // namespace ckpt::bench
