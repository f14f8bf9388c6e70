// SPDX-License-Identifier: Apache-2.0
// The item doctor. It reports what is missing on this node (`gpumigrate doctor`), and how a restored process
// gets memory on its GPU (`gpumigrate-context --probe-remap`).
#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

std::string listed(const Json& names) {
  std::string all;
  for (const Json& name : names) all += (all.empty() ? "" : ", ") + name.get<std::string>();
  return all;
}

void take_abilities(const Json& abilities, Outcome& outcome) {
  for (const Json& ability : abilities) {
    const std::string answer = ability.at("answer").get<std::string>();
    outcome.add(
        ability.at("what").get<std::string>(), answer == "yes" ? Status::kPassed : Status::kImpossible,
        answer == "yes" ? "" : (answer == "no" ? "missing " : "unknown ") + listed(ability.at("missing")));
  }
}

}  // namespace

Result<Outcome> check_doctor(const Setting& setting) {
  CKPT_TRY(doctor, run_program(setting, {setting.programs + "/gpumigrate", "doctor", "-o", "json"}));
  const Json diagnosis = Json::parse(doctor.out, nullptr, false);
  if (!diagnosis.is_object())
    return Error(ErrorCode::kCorrupt, "gpumigrate doctor printed no diagnosis: " + doctor.err + doctor.out);
  CKPT_TRY(remap, run_program(setting, {setting.programs + "/gpumigrate-context", "--probe-remap"}));
  CKPT_TRY(found, last_object(remap.out));
  Outcome outcome;
  take_abilities(diagnosis.at("can"), outcome);
  const Json& facts = found.at("remap");
  const bool has_memory = facts.at("import") == true || facts.at("own") == true;
  outcome.add("memory after a restore", has_memory ? Status::kPassed : Status::kFailed,
              has_memory ? "" : facts.at("problem").get<std::string>());
  outcome.figures = {{"diagnosis", diagnosis}, {"remap", facts}};
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
