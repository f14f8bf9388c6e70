// SPDX-License-Identifier: Apache-2.0
// Functions of the items that move examples: runs without a move, digests, moves as JSON.
// Threads: one. Errors: as tools/bench/jobs/command.h.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/jobs/cluster.h"
#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {

// Why there is no example of the runtime API.
inline constexpr const char* kNoRuntimeExample =
    "this build had no nvcc, so the example runtime is not there";

// The digest in the JSON object at the end of an example's output.
Result<std::string> digest_of(const std::string& output);

// The digest of a run of `program` that is not moved. kAborted with its output if it ends with another status than 0.
Result<std::string> run_alone(const Setting& setting, const std::string& program,
                              const bench::Arguments& arguments);

// Adds the part "digest" to `outcome`.
void compare_digests(const std::string& moved, const std::string& unmoved, Outcome& outcome);

[[nodiscard]] Json json_of(const bench::Move& move);

// The value of charlm's --params: smaller in a quick run and on the software GPU.
[[nodiscard]] std::string charlm_parameters(const Setting& setting);

}  // namespace ckpt::gpu_check
