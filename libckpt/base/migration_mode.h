// SPDX-License-Identifier: Apache-2.0
// How a job is moved (docs/design.md §3). Messages have numbers of their own for it: those of the control
// plane stand beside JobSpec (libckpt/protocol/wire/job_messages.h), those between keeper, rank and agent in
// libckpt/inprocess/local/messages.h.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string_view>

namespace ckpt {

enum class MigrationMode : std::uint8_t {
  kInvalid = 0,
  kCooperative = 1,
  kTransparent = 2,
  kAdopted = 3,  // a process that was running already: stop-and-copy, the driver saves its device memory
};
[[nodiscard]] constexpr std::string_view to_string(MigrationMode mode) noexcept {
  if (mode == MigrationMode::kAdopted) return "adopted";
  return mode == MigrationMode::kTransparent ? "transparent" : "cooperative";
}

}  // namespace ckpt
