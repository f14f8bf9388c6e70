// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/evacuation.h"

#include <algorithm>
#include <tuple>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

namespace {

constexpr std::uint64_t kSlowLinkBytesPerMs = 100'000;  // the payload rate of a one-gigabit link, without
                                                        // frame overhead

}  // namespace

std::string evacuation_text(EvacuationId id) {
  return wire::id_text('e', id);
}

std::vector<EvacuationId> next_evacuations(const std::vector<const Evacuation*>& open,
                                           const std::set<EvacuationId>& waiting,
                                           const EvacuationLimits& limits) {
  std::vector<const Evacuation*> queued;
  std::size_t under_way = 0;
  bool urgent = false;
  for (const Evacuation* e : open) {
    if (e->state == EvacuationState::kQueued && !waiting.contains(e->id)) queued.push_back(e);
    under_way += is_under_way(e->state) ? 1 : 0;
    urgent = urgent || (e->urgent && e->open());
  }
  const auto rank = [](const Evacuation* e) {
    return std::tuple(!e->urgent, e->outcome != wire::HealthOutcome::kLive, e->id);
  };
  std::sort(queued.begin(), queued.end(),
            [&](const Evacuation* a, const Evacuation* b) { return rank(a) < rank(b); });
  std::vector<EvacuationId> next;
  for (const Evacuation* e : queued) {
    const bool has_slot =
        e->urgent ? under_way + next.size() < limits.parallel : !urgent && under_way == 0 && next.empty();
    if (has_slot) next.push_back(e->id);
  }
  return next;
}

std::uint32_t recent_starts(const std::vector<const Evacuation*>& all, std::int64_t now_ms,
                            std::int64_t forgiven_ms, const EvacuationLimits& limits) {
  const std::int64_t since = std::max(now_ms - limits.breaker_window_ms, forgiven_ms);
  return static_cast<std::uint32_t>(std::count_if(all.begin(), all.end(), [&](const Evacuation* e) {
    return !e->started_ms.empty() && e->started_ms.front() > since;
  }));
}

bool trips_breaker(std::uint32_t recent, const EvacuationLimits& limits) {
  return recent >= limits.breaker_count;
}

std::int64_t live_deadline_ms(std::int64_t base_ms, std::uint64_t bytes) {
  return base_ms + static_cast<std::int64_t>(bytes / kSlowLinkBytesPerMs);
}

std::uint32_t attempts_of(JobId job, const std::vector<const Evacuation*>& all, std::int64_t now_ms,
                          const EvacuationLimits& limits) {
  std::uint32_t attempts = 0;
  for (const Evacuation* e : all) {
    if (e->job != job) continue;
    const auto recent = static_cast<std::size_t>(
        std::count_if(e->started_ms.begin(), e->started_ms.end(),
                      [&](std::int64_t started) { return started > now_ms - limits.job_window_ms; }));
    attempts += static_cast<std::uint32_t>(recent - std::min(recent, e->failed.size()));
  }
  return attempts;
}

std::string failed_text(const Evacuation& evacuation) {
  std::string text;
  for (const FailedTarget& target : evacuation.failed)
    text += (text.empty() ? "" : "; ") + to_text(target.to) + ": " + target.reason;
  return text;
}

void escalate(Evacuation& evacuation, const Evacuation& further) {
  // From now on the finding is the reason, so the outcomes of earlier live moves are removed.
  if (further.outcome == wire::HealthOutcome::kRestore) {
    evacuation.failed.clear();
    evacuation.not_live.clear();
  }
  const bool graver = further.outcome > evacuation.outcome || (further.urgent && !evacuation.urgent) ||
                      (further.leave_node && !evacuation.leave_node);
  evacuation.outcome = std::max(evacuation.outcome, further.outcome);
  evacuation.urgent = evacuation.urgent || further.urgent;
  evacuation.leave_node = evacuation.leave_node || further.leave_node;
  evacuation.revive = evacuation.revive || further.revive;
  if (graver) evacuation.reason = further.reason;
}

}  // namespace ckpt::coordinator
