// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor` shows which moves this machine supports, and what the others need. The facts are JSON
// from another program, `gpumigrate-agent --probe` (agent/daemon/probe.h). Any of them may be missing; then
// the answer is "unknown".
// Threads: one. Errors: kNotFound, kTimedOut or kIo if the agent's program cannot be run or does not answer.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

enum class Answer { kYes, kNo, kUnknown };
[[nodiscard]] const char* name_of(Answer answer) noexcept;

// A requirement that a node meets or lacks.
struct Finding {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::string value;
  std::string needed_for;
  std::string to_do;  // if the answer is not yes
};

// An operation. The answer is yes if the node meets all its requirements.
struct Ability {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::vector<std::string> missing;  // names of its findings that are not "yes"
};

struct Diagnosis {
  std::string node;
  std::vector<Ability> abilities;
  std::vector<Finding> findings;
};

// Pure.
[[nodiscard]] Diagnosis diagnose(const Json& facts);
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);
// Returns tables that fit the layout, then the advice, wrapped.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Layout& layout = {});

// Runs the command in the caller's environment with `additions`, and returns the facts that it prints.
Result<Json> ask_for_facts(const std::vector<std::string>& command, const std::vector<std::string>& additions,
                           std::chrono::milliseconds patience);

// Runs the command. GPUMIGRATE_SOFTWARE_GPU=1 probes the software GPU instead of the installed driver.
// `agent_config` names the settings of a node's agent: the results are saved for that agent. It may be empty.
int doctor(Context& context, const std::string& agent_config);

}  // namespace ckpt::cli
