// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/handover_queue.h"

#include <algorithm>
#include <iterator>

namespace ckpt::agent {

bool HandoverQueue::put_heard(wire::SwitchMessage message) {
  const wire::MigrationId migration = message.migration;
  const auto own = heard_of_.find(migration);
  const std::size_t waiting = own == heard_of_.end() ? 0 : own->second;
  if (waiting >= kMaxOfMigration) return false;
  const bool full = heard_ >= kMaxHeard;
  if (full) {
    const auto most = std::max_element(heard_of_.begin(), heard_of_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second < waiting + 1) return false;
    drop_newest_of(most->first);
  }
  ++heard_of_[migration];
  ++heard_;
  entries_.push_back({Item(std::move(message)), true});
  return !full;
}

HandoverQueue::Item HandoverQueue::take() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  if (entry.heard) uncount(std::get<wire::SwitchMessage>(entry.item).migration);
  return std::move(entry.item);
}

void HandoverQueue::drop_newest_of(wire::MigrationId migration) {
  const auto newest = std::find_if(entries_.rbegin(), entries_.rend(), [migration](const Entry& entry) {
    return entry.heard && std::get<wire::SwitchMessage>(entry.item).migration == migration;
  });
  entries_.erase(std::prev(newest.base()));
  uncount(migration);
}

void HandoverQueue::uncount(wire::MigrationId migration) {
  const auto of = heard_of_.find(migration);
  if (--of->second == 0) heard_of_.erase(of);
  --heard_;
}

}  // namespace ckpt::agent
