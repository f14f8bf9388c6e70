// SPDX-License-Identifier: Apache-2.0
// The item probe. It runs driver_probe and evaluates the report variant by variant.
#include <algorithm>

#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

constexpr double kReserveSeconds = 3;  // the time reserved for reading the report
constexpr int kMinBudget = 5;

Status status_of(const std::string& outcome) {
  if (outcome == "passed") return Status::kPassed;
  return outcome == "not possible here" ? Status::kImpossible : Status::kFailed;
}

// Returns the milliseconds of the driver's steps, for which a switch would wait.
Json times_of(const Json& variant) {
  Json times = Json::object();
  for (const Json& step : variant.at("steps")) {
    const std::string name = step.at("step").get<std::string>();
    if (name.starts_with("cuCheckpoint") && step.at("outcome") == "passed") times[name] = step.at("ms");
  }
  return times;
}

void take(const Json& report, Outcome& outcome) {
  Json variants = Json::object();
  for (const Json& variant : report.at("variants")) {
    const std::string name = variant.at("name").get<std::string>();
    outcome.add(name, status_of(variant.at("outcome").get<std::string>()),
                variant.at("outcome") == "passed" ? "" : variant.at("reason").get<std::string>());
    variants[name] = {{"outcome", variant.at("outcome")},
                      {"meaning", variant.at("meaning")},
                      {"parts", variant.value("parts", Json::object())},
                      {"ms", times_of(variant)}};
  }
  outcome.figures["variants"] = variants;
  outcome.figures["report"] = report;
}

}  // namespace

Result<Outcome> check_probe(const Setting& setting) {
  Outcome outcome;
  const std::string file = setting.work + "/driver_probe.json";
  const int budget = std::max(kMinBudget, static_cast<int>(seconds_left(setting) - kReserveSeconds));
  CKPT_TRY(output, run_program(setting, {setting.programs + "/driver_probe", "--json", file, "--step-seconds",
                                         "15", "--budget-seconds", std::to_string(budget)}));
  CKPT_TRY(report, read_json(file));
  try {
    take(report, outcome);
  } catch (const Json::exception& error) {
    return Error(ErrorCode::kCorrupt, std::string("driver_probe's report: ") + error.what());
  }
  outcome.figures["exit_status"] = output.exit_code;
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
