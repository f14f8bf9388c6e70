// SPDX-License-Identifier: Apache-2.0
// Functions that several items use. They run sibling programs with a deadline, read JSON from a file or from
// the end of an output, and look for UCX's network.
// Threads: one. Errors: as tools/bench/jobs/command.h.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/jobs/command.h"
#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {

// With this process's environment, until the item's deadline.
Result<bench::CommandOutput> run_program(const Setting& setting, const std::vector<std::string>& argv);

// The last line of `text` that is a JSON object.
Result<Json> last_object(const std::string& text);

Result<Json> read_json(const std::string& path);

// Why UCX would find no network device here (it looks for them in /sys); empty: it would.
[[nodiscard]] std::string missing_network();

[[nodiscard]] double seconds_left(const Setting& setting);

}  // namespace ckpt::gpu_check
