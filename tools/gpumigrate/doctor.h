// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor` shows which moves this machine supports, and what the other moves need. The facts are
// JSON from a different program, `gpumigrate-agent --probe` (agent/daemon/probe.h). Any fact may be missing;
// the answer is then "unknown".
// Threads: one. Errors: kNotFound, kTimedOut or kIo if the agent's program cannot be run or does not answer.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

enum class Answer { kYes, kNo, kUnknown };
[[nodiscard]] const char* name_of(Answer answer) noexcept;

// A requirement that a node satisfies or lacks.
struct Finding {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::string value;
  std::string needed_for;
  std::string to_do;  // the advice if the answer is not yes
};

// An operation. The answer is yes if the node satisfies all requirements of the operation.
struct Ability {
  std::string what;
  Answer answer = Answer::kUnknown;
  std::vector<std::string> missing;  // names of the ability's findings that are not "yes"
};

struct Diagnosis {
  std::string node;
  std::vector<Ability> abilities;
  std::vector<Finding> findings;
};

// These functions are pure. diagnose() derives the diagnosis from the facts.
[[nodiscard]] Diagnosis diagnose(const Json& facts);
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);
// Returns tables that fit the layout, then the advice, wrapped.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const Layout& layout = {});

// Runs the command in the caller's environment with `additions`. Returns the facts that the command prints.
Result<Json> ask_for_facts(const std::vector<std::string>& command, const std::vector<std::string>& additions,
                           std::chrono::milliseconds patience);

// Runs `gpumigrate doctor`. With GPUMIGRATE_SOFTWARE_GPU=1 it probes the software GPU instead of the
// installed driver. `agent_config` names the settings of a node's agent, for which the results are saved. It
// may be empty.
int doctor(Context& context, const std::string& agent_config);

}  // namespace ckpt::cli
