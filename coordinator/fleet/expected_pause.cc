// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/expected_pause.h"

#include "coordinator/state/usual_pause.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

std::optional<ExpectedPause> expected_pause(const Job& job, const NodeTable& nodes, bool within_node) {
  using wire::PauseKind;
  ExpectedPause pause;
  if (const auto usual = usual_pause(job.pauses)) {
    const PauseKind kind = usual->kind;
    const bool swap = kind == PauseKind::kSwap || kind == PauseKind::kAdoptedSwap;
    pause.ms = static_cast<double>(usual->ns.total()) / kNanosPerMs;
    if (kind == PauseKind::kCooperative || swap == within_node) return pause;
  }
  if (job.state != JobState::kRunning || job.segments.empty()) return std::nullopt;
  const auto at = nodes.all().find(job.node());
  if (at == nodes.all().end()) return std::nullopt;
  const wire::JobInstance* instance = at->second.find(job.id, job.segments.back().incarnation);
  if (instance == nullptr) return std::nullopt;
  const auto ns = within_node ? instance->pause_within_node_ns : instance->pause_between_nodes_ns;
  if (ns <= 0) return std::nullopt;
  pause.ms = static_cast<double>(ns) / kNanosPerMs;
  pause.is_estimate = true;
  return pause;
}

}  // namespace ckpt::coordinator
