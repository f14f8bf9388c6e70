// SPDX-License-Identifier: Apache-2.0
// Functions that several items use. They run other programs of the bundle with a deadline. They read JSON
// from a file or from the end of an output, and search for UCX's network.
// Threads: one. Errors: as in tools/bench/jobs/command.h.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/jobs/command.h"
#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {

// Runs a program with this process's environment, until the item's deadline.
Result<bench::CommandOutput> run_program(const Setting& setting, const std::vector<std::string>& argv);

// Returns the last line of `text` that is a JSON object.
Result<Json> last_object(const std::string& text);

Result<Json> read_json(const std::string& path);

// Returns why UCX would find no network device here (it searches /sys); empty: it would find one.
[[nodiscard]] std::string missing_network();

[[nodiscard]] double seconds_left(const Setting& setting);

}  // namespace ckpt::gpu_check
