// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench, a section at a time: what is not done in time costs only itself.
#include <unistd.h>

#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

struct Section {
  const char* name;
  const char* summary;
};
constexpr Section kSections[] = {
#define BENCH_SECTION(name, summary) {#name, summary},
#include "tools/bench/sections.def"
#undef BENCH_SECTION
};
constexpr double kLeastSeconds = 8;  // what is worth starting a section for

Result<void> run_section(const Setting& setting, const Section& section, Outcome& outcome) {
  const std::string file = setting.work + "/bench-" + section.name + ".json";
  const std::vector<std::string> call = {setting.programs + "/gpumigrate-bench",
                                         section.name,
                                         "--pairs",
                                         setting.quick ? "1" : "3",
                                         "--bytes",
                                         setting.quick ? "32MiB" : "512MiB",
                                         "--output",
                                         setting.work,
                                         "--json",
                                         file};
  auto output = run_program(setting, call);
  if (!output) {
    outcome.add(section.name, Status::kFailed, output.assume_error().to_string());
    return ok();
  }
  CKPT_TRY(report, read_json(file));
  outcome.figures[section.name] = report;
  const int code = output.assume_value().exit_code;
  outcome.add(section.name, code == 0 ? Status::kPassed : Status::kFailed,
              code == 0 ? "" : "exit status " + std::to_string(code));
  return ok();
}

}  // namespace

Result<Outcome> check_bench(const Setting& setting) {
  Outcome outcome;
  if (::access((setting.programs + "/gpumigrate-bench").c_str(), X_OK) != 0) {
    outcome.status = Status::kImpossible;
    outcome.why = "gpumigrate-bench is not beside this program";
    return outcome;
  }
  for (const Section& section : kSections) {
    // Drawn from the figures of other sections of one run.
    if (std::string_view(section.name) == "plots") continue;
    if (seconds_left(setting) < kLeastSeconds) {
      outcome.add(section.name, Status::kImpossible, "no time left");
      continue;
    }
    auto done = run_section(setting, section, outcome);
    if (!done) outcome.add(section.name, Status::kFailed, done.assume_error().to_string());
  }
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
