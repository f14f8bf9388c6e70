// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor`: what the machine it runs on can do, and what is missing for the rest. The facts come
// from `gpumigrate-agent --probe` (agent/daemon/probe.h) as JSON of another program, so every one of them may
// be missing; then the answer is "unknown".
// Threads: one. Errors: kNotFound, kTimedOut or kIo if the agent's program cannot be asked.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

enum class Answer { kYes, kNo, kUnknown };
[[nodiscard]] const char* name_of(Answer answer) noexcept;

// One thing that a node has or lacks.
struct Finding {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::string value;
  std::string needed_for;
  std::string to_do;  // if the answer is not yes
};

// One thing that a node can do: yes if it has all that it needs.
struct Ability {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::vector<std::string> missing;  // of the findings, those that are not "yes"
};

struct Diagnosis {
  std::string node;
  std::vector<Ability> abilities;
  std::vector<Finding> findings;
};

// Pure.
[[nodiscard]] Diagnosis diagnose(const Json& facts);
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);
// Tables that fit the layout, and what to do, wrapped.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Layout& layout = {});

// The facts that the command prints, in the caller's environment with `additions`.
Result<Json> ask_for_facts(const std::vector<std::string>& command, const std::vector<std::string>& additions,
                           std::chrono::milliseconds patience);

// The command. GPUMIGRATE_SOFTWARE_GPU=1 asks the software GPU in place of the installed driver.
// `agent_config` (may be empty): the settings of a node's agent, which then goes by what is found again here.
int doctor(Context& context, const std::string& agent_config);

}  // namespace ckpt::cli
