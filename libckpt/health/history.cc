// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/history.h"

#include <algorithm>
#include <set>

namespace ckpt::health {

void History::add(Occurrence occurrence) {
  all_.push_back(std::move(occurrence));
  if (all_.size() > kMaxOccurrences) all_.pop_front();
}

std::string History::suspicion(const std::string& gpu, const XidRow& row, std::int64_t now_ms,
                               const RepeatRule& rule) const {
  const bool left_to_the_job = row.evacuation == Outcome::kNone && row.memory_readable == Readable::kOthers;
  if (!left_to_the_job || row.cause == "secondary" || rule.jobs == 0) return {};
  const auto counts = [&](const Occurrence& o) {
    return o.xid == row.xid && o.time_ms + rule.within_ms > now_ms;
  };
  std::set<std::uint64_t> wanderers;
  for (const Occurrence& o : all_) {
    if (counts(o) && o.gpu != gpu && o.job != 0) wanderers.insert(o.job);
  }
  const bool by_driver = row.cause == "driver_fw";
  std::set<std::uint64_t> jobs;
  std::uint32_t times = 0;
  for (const Occurrence& o : all_) {
    if (!counts(o) || o.gpu != gpu || wanderers.contains(o.job)) continue;
    jobs.insert(o.job);
    ++times;
  }
  const std::uint32_t count = by_driver ? times : static_cast<std::uint32_t>(jobs.size());
  if (count < rule.jobs) return {};
  return "Xid " + std::to_string(row.xid) + " occurred again on this GPU: " + std::to_string(count) +
         (by_driver ? " times" : " different jobs") + " within " + std::to_string(rule.within_ms / 3600000) +
         " h";
}

}  // namespace ckpt::health
