// SPDX-License-Identifier: Apache-2.0
// The log of events for `gpumigrate events`. It has the newest `events_kept` events, with increasing ids.
// Threads: one. Errors: an event that cannot be stored is logged and dropped; no other part waits for events.
#pragma once

#include "coordinator/state/listeners.h"
#include "coordinator/state/retention.h"
#include "coordinator/state/signal.h"
#include "coordinator/state/store.h"

namespace ckpt::coordinator {

class EventLog {
 public:
  EventLog(Store& store, control::asio::any_io_executor executor)
      : store_(store), changed_(std::move(executor)) {}

  void add(std::string kind, std::string text, std::string node = {}, JobId job = 0,
           MigrationId migration = 0);
  Result<std::vector<Event>> find(const EventQuery& query) { return store_.events(query); }
  Result<std::uint64_t> newest() { return store_.newest_event(); }
  // Removes some of the events that `retention` does not keep. Returns true if there are more such events.
  bool prune(const Retention& retention);
  [[nodiscard]] Signal& changed() { return changed_; }
  // Returns the listeners that receive each event before it is stored.
  [[nodiscard]] Listeners<const Event&>& added() { return added_; }

 private:
  Store& store_;
  Signal changed_;
  Listeners<const Event&> added_;
};

}  // namespace ckpt::coordinator
