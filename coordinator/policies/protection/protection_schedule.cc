// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/protection/protection_schedule.h"

#include <algorithm>
#include <utility>

namespace ckpt::coordinator {

std::int64_t ProtectionSchedule::interval_of(const Entry& entry) {
  constexpr unsigned kMaxDoublings = 20;
  const std::int64_t longest = std::max(entry.every_ms, kLongestBackoffMs);
  std::int64_t interval = entry.every_ms;
  for (unsigned i = 0; i < std::min(entry.failures, kMaxDoublings) && interval < longest; ++i) interval *= 2;
  return std::min(interval, longest);
}

void ProtectionSchedule::protect(wire::JobId job, std::int64_t every_ms, std::int64_t begun_ms,
                                 unsigned failures) {
  Entry& entry = entries_[job];
  entry.every_ms = every_ms;
  entry.begun_ms = begun_ms;
  entry.failures = failures;
  entry.due_ms = begun_ms == 0 ? 0 : begun_ms + interval_of(entry);
}

void ProtectionSchedule::drop(wire::JobId job) {
  entries_.erase(job);
}

void ProtectionSchedule::drop_removed(const std::function<bool(wire::JobId)>& exists) {
  std::erase_if(entries_, [&exists](const auto& at) { return !at.second.running && !exists(at.first); });
}

std::vector<wire::JobId> ProtectionSchedule::due(std::int64_t now_ms, const Where& where) const {
  std::vector<std::pair<std::int64_t, wire::JobId>> waiting;
  std::set<std::string> busy;
  for (const auto& [job, entry] : entries_) {
    if (entry.running)
      busy.insert(entry.nodes.begin(), entry.nodes.end());
    else if (entry.due_ms <= now_ms || entry.begun_ms > now_ms)  // a begin in the future shows that the clock
                                                                 // was set back
      waiting.emplace_back(entry.due_ms, job);
  }
  std::sort(waiting.begin(), waiting.end());
  std::vector<wire::JobId> due;
  for (const auto& [at, job] : waiting) {
    const auto nodes = where(job);
    if (!nodes) continue;
    const bool are_free = std::none_of(nodes->begin(), nodes->end(),
                                       [&busy](const std::string& node) { return busy.contains(node); });
    if (are_free) due.push_back(job);
    busy.insert(nodes->begin(), nodes->end());
  }
  return due;
}

void ProtectionSchedule::began(wire::JobId job, Nodes nodes, std::int64_t now_ms) {
  const auto at = entries_.find(job);
  if (at == entries_.end()) return;
  at->second.begun_ms = now_ms;
  at->second.running = true;
  at->second.nodes = std::move(nodes);
}

void ProtectionSchedule::ended(wire::JobId job, std::int64_t now_ms, bool good) {
  const auto at = entries_.find(job);
  if (at == entries_.end()) return;
  Entry& entry = at->second;
  entry.running = false;
  entry.failures = good ? 0 : entry.failures + 1;
  entry.due_ms = std::max(entry.begun_ms + interval_of(entry), now_ms);
}

std::optional<std::int64_t> ProtectionSchedule::next_due(std::int64_t now_ms) const {
  std::optional<std::int64_t> next;
  for (const auto& [job, entry] : entries_) {
    // An overdue snapshot waits for a change, not for a time.
    if (entry.running || entry.due_ms <= now_ms) continue;
    next = std::min(next.value_or(entry.due_ms), entry.due_ms);
  }
  return next;
}

std::optional<std::int64_t> ProtectionSchedule::due_of(wire::JobId job) const {
  const auto at = entries_.find(job);
  return at == entries_.end() ? std::nullopt : std::optional(at->second.due_ms);
}

}  // namespace ckpt::coordinator
