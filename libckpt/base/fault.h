// SPDX-License-Identifier: Apache-2.0
// Numbered crash points. At fault_point(N) a process checks for a file "ROLE.N" in the folder that
// CKPT_FAULT_DIR names. ROLE is the argument of set_fault_role(), such as "agent.node-a", "mover.node-b.0" or
// "coordinator". If the file exists, the process removes it and executes its text: "kill" (SIGKILL, the
// default) or "stop" (SIGSTOP). A test can therefore arm a single crash of one process, and the restarted
// process passes the same point. Without CKPT_FAULT_DIR a fault point costs one load. Do not use fault points
// on per-chunk paths.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

enum class FaultPoint : std::uint16_t {
#define CKPT_FAULT_POINT(number, name) name = number,
#include "libckpt/base/fault_points.def"
#undef CKPT_FAULT_POINT
};
[[nodiscard]] std::string_view to_string(FaultPoint point) noexcept;

// Names this process for fault files. Call it once, at start.
void set_fault_role(std::string role);

void fault_point(FaultPoint point) noexcept;

}  // namespace ckpt
