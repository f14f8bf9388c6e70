// SPDX-License-Identifier: Apache-2.0
// Functions of the items that move examples: runs without a move, digests, and moves as JSON.
// Threads: one. Errors: as in tools/bench/jobs/command.h.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/jobs/cluster.h"
#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {

// The reason if there is no example of the runtime API.
inline constexpr const char* kNoRuntimeExample =
    "this build had no nvcc, so the example `runtime` was not built";

// Returns the digest in the JSON object at the end of an example's output.
Result<std::string> digest_of(const std::string& output);

// Returns the digest of a run of `program` that is not moved. Returns kAborted with its output if it exits
// with a status other than 0.
Result<std::string> run_alone(const Setting& setting, const std::string& program,
                              const bench::Arguments& arguments);

// Compares the digests and adds the part "digest" to `outcome`.
void compare_digests(const std::string& moved, const std::string& unmoved, Outcome& outcome);

[[nodiscard]] Json json_of(const bench::Move& move);

// Returns the value of charlm's --params. It is smaller in a quick run and on the software GPU.
[[nodiscard]] std::string charlm_parameters(const Setting& setting);

}  // namespace ckpt::gpu_check
