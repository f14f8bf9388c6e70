// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/event_log.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

// Makes the text one line, because an event is one line of the log whatever users put into names and reasons.
std::string one_line(std::string text) {
  constexpr char kDelete = 0x7f;
  for (char& c : text)
    if ((c >= 0 && c < ' ') || c == kDelete) c = ' ';
  return text;
}

}  // namespace

void EventLog::add(std::string kind, std::string text, std::string node, JobId job, MigrationId migration) {
  Event event;
  event.time_ms = wall_clock_ms();
  event.kind = std::move(kind);
  event.text = one_line(std::move(text));
  event.node = std::move(node);
  event.job = job;
  event.migration = migration;
  spdlog::info("{} {}", event.kind, event.text);
  added_.notify(event);
  auto id = store_.add(event);
  if (!id) {
    spdlog::error("event {} was not stored: {}", event.kind, id.error().to_string());
    return;
  }
  changed_.notify();
}

bool EventLog::prune(const Retention& retention) {
  auto pruned = store_.prune_events(retention.count, retention.since_ms);
  if (pruned) return *pruned;
  spdlog::error("old events were not removed: {}", pruned.error().to_string());
  return false;
}

}  // namespace ckpt::coordinator
