// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/doubt.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxDoubts = 16;  // the limit on the doubts of one job; beyond it, the oldest doubt is
                                        // removed

}  // namespace

std::string why_suspect(const std::vector<Doubt>& doubts, wire::Incarnation incarnation,
                        std::int64_t barrier_ms) {
  for (const Doubt& doubt : doubts) {
    const bool is_later = incarnation > doubt.from && (doubt.open() || incarnation <= doubt.up_to);
    if (is_later || (incarnation == doubt.from && barrier_ms >= doubt.since_ms)) return doubt.reason;
  }
  return {};
}

const Doubt* open_doubt(const std::vector<Doubt>& doubts) {
  const auto at = std::find_if(doubts.begin(), doubts.end(), [](const Doubt& doubt) { return doubt.open(); });
  return at == doubts.end() ? nullptr : &*at;
}

// Adds a doubt, unless one is open. The open doubt covers all that follow.
bool add_doubt(std::vector<Doubt>& doubts, Doubt doubt) {
  if (open_doubt(doubts) != nullptr) return false;
  if (doubts.size() >= kMaxDoubts) doubts.erase(doubts.begin());
  doubts.push_back(std::move(doubt));
  return true;
}

void end_doubts(std::vector<Doubt>& doubts, wire::Incarnation up_to) {
  for (Doubt& doubt : doubts)
    if (doubt.open()) doubt.up_to = up_to;
}

}  // namespace ckpt::coordinator
