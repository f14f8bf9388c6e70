// SPDX-License-Identifier: Apache-2.0
// Numbered crash points. A process reaches fault_point(N) and looks for a file "ROLE.N" in the folder that
// CKPT_FAULT_DIR names. ROLE is what set_fault_role() was given, such as "agent.node-a", "mover.node-b.0" or
// "coordinator". If the file is there, the process removes it and obeys its text. That is "kill"
// (SIGKILL, the default) or "stop" (SIGSTOP). So a test arms one crash in one process, once, and a restarted
// process passes. Without CKPT_FAULT_DIR a fault point costs one load. Never on per-chunk paths. Threads:
// any.
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

// Names this process for fault files; call once at start.
void set_fault_role(std::string role);

void fault_point(FaultPoint point) noexcept;

}  // namespace ckpt
