// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/usual_pause.h"

#include <algorithm>

namespace ckpt::coordinator {

void add_pause(std::vector<wire::PauseFacts>& pauses, const wire::PauseFacts& latest) {
  if (pauses.size() >= kMaxPauses) pauses.erase(pauses.begin());
  pauses.push_back(latest);
}

std::optional<wire::PauseFacts> usual_pause(const std::vector<wire::PauseFacts>& pauses) {
  if (pauses.empty()) return std::nullopt;
  std::vector<const wire::PauseFacts*> alike;
  for (const wire::PauseFacts& pause : pauses)
    if (pause.kind == pauses.back().kind) alike.push_back(&pause);
  wire::PauseFacts usual;
  usual.kind = pauses.back().kind;
  for (std::size_t term = 0; term < wire::kPauseTerms; ++term) {
    const auto took = [term](const wire::PauseFacts* pause) { return pause->ns.all.at(term); };
    std::ranges::sort(alike, {}, took);
    // If the number of pauses is even, the lower of the two middle ones counts. Other work makes a pause
    // longer, never shorter.
    const wire::PauseFacts& middle = *alike[(alike.size() - 1) / 2];
    usual.ns.all.at(term) = middle.ns.all.at(term);
    usual.bytes.all.at(term) = middle.bytes.all.at(term);
  }
  return usual;
}

}  // namespace ckpt::coordinator
