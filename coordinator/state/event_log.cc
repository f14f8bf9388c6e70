// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/event_log.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

void EventLog::add(std::string kind, std::string text, std::string node, JobId job, MigrationId migration) {
  Event event;
  event.time_ms = wall_clock_ms();
  event.kind = std::move(kind);
  event.text = std::move(text);
  event.node = std::move(node);
  event.job = job;
  event.migration = migration;
  spdlog::info("{} {}", event.kind, event.text);
  added_.notify(event);
  auto id = store_.add(event);
  if (!id) {
    spdlog::error("event {} was not stored: {}", event.kind, id.assume_error().to_string());
    return;
  }
  changed_.notify();
}

bool EventLog::forget_old(const Retention& keep) {
  auto pruned = store_.prune_events(keep.count, keep.since_ms);
  if (pruned) return pruned.assume_value();
  spdlog::error("old events were not removed: {}", pruned.assume_error().to_string());
  return false;
}

}  // namespace ckpt::coordinator
