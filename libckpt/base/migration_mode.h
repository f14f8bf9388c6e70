// SPDX-License-Identifier: Apache-2.0
// The way in which a job is moved (docs/design.md §3). Messages have their own numbers for it. The numbers of
// the control plane are next to JobSpec (libckpt/protocol/wire/job_messages.h). The numbers between keeper,
// rank and agent are in libckpt/inprocess/local/messages.h.
// Threads: a plain value.
#pragma once

#include <cstdint>
#include <string_view>

namespace ckpt {

enum class MigrationMode : std::uint8_t {
  kInvalid = 0,
  kCooperative = 1,
  kTransparent = 2,
  kAdopted = 3,  // a process that was already running: stop-and-copy, and the driver saves its device memory
};
[[nodiscard]] constexpr std::string_view to_string(MigrationMode mode) noexcept {
  if (mode == MigrationMode::kAdopted) return "adopted";
  return mode == MigrationMode::kTransparent ? "transparent" : "cooperative";
}

}  // namespace ckpt
