// SPDX-License-Identifier: Apache-2.0
// The sections of gpumigrate-bench, each as a separate item. A section that does not finish in time does not
// affect other sections, and processes that it leaves behind are killed with it.
#include <unistd.h>

#include "libckpt/base/fd.h"
#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::size_t kMaxMarkdown = std::size_t{1} << 20;

std::string text_of(const Json& section, const char* name) {
  const auto at = section.find(name);
  return at != section.end() && at->is_string() ? at->get<std::string>() : "";
}

// Takes over a section's result. Goals were set for another machine, so they are figures here, and a missed
// goal is not a failure.
void take_section(const Json& section, Outcome& outcome) {
  const std::string failed = text_of(section, "failed");
  const std::string skipped = text_of(section, "skipped");
  if (!failed.empty()) {
    outcome.status = Status::kFailed;
    outcome.reason = failed;
  } else if (!skipped.empty()) {
    outcome.status = Status::kImpossible;
    outcome.reason = skipped;
  }
  int met = 0;
  int goals = 0;
  for (const Json& goal : section.value("goals", Json::array())) {
    goals++;
    met += goal.value("passed", false) ? 1 : 0;
  }
  outcome.figures["goals"] = goals;
  outcome.figures["goals_met"] = met;
}

// Returns true for sections that send data or start a cluster.
bool needs_network(const std::string& name) {
  return name != "fingerprint" && name != "codecs" && name != "calls";
}

Result<Outcome> run_section(const Setting& setting, const std::string& name) {
  const std::string program = setting.programs + "/gpumigrate-bench";
  if (::access(program.c_str(), X_OK) != 0)
    return not_possible("gpumigrate-bench is not next to this program");
  if (name == "plots") return not_possible("the plots need the sweeps of the same run");
  if (const std::string missing = missing_network(); !missing.empty() && needs_network(name))
    return not_possible(missing);
  const bool small = setting.quick || setting.software;
  const std::string json = setting.work + "/bench.json";
  const std::string markdown = setting.work + "/bench.md";
  CKPT_TRY(output, run_program(setting, {program, name, "--pairs", small ? "1" : "3", "--bytes",
                                         small ? "32MiB" : "256MiB", "--output", setting.work, "--json", json,
                                         "--markdown", markdown}));
  CKPT_TRY(report, read_json(json));
  Outcome outcome;
  outcome.figures["report"] = report;
  if (auto text = read_file(markdown, kMaxMarkdown)) outcome.figures["markdown"] = *text;
  for (const Json& section : report.value("sections", Json::array())) take_section(section, outcome);
  if (output.exit_code != 0 && outcome.status == Status::kPassed) {
    outcome.status = Status::kFailed;
    outcome.reason = "exit status " + std::to_string(output.exit_code);
  }
  return outcome;
}

}  // namespace

#define BENCH_SECTION(name, summary)                           \
  Result<Outcome> check_bench_##name(const Setting& setting) { \
    return run_section(setting, #name);                        \
  }
#include "tools/bench/sections.def"
#undef BENCH_SECTION

}  // namespace ckpt::gpu_check
