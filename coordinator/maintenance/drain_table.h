// SPDX-License-Identifier: Apache-2.0
// The drains as they are stored, those that are over until prune(); ids stay theirs for ever.
// Threads: one io_context on one thread. Ownership: drains live here; borrows the store, which outlives it.
// Errors: those of the store.
#pragma once

#include <map>
#include <vector>

#include "coordinator/policies/drain/drain.h"
#include "coordinator/state/retention.h"
#include "coordinator/state/signal.h"
#include "coordinator/state/store.h"

namespace ckpt::coordinator {

class DrainTable {
 public:
  DrainTable(Store& store, control::asio::any_io_executor executor)
      : store_(store), changed_(std::move(executor)) {}

  Result<void> load();
  // Stored under a new id, which is returned.
  Result<DrainId> add(Drain drain);
  // Stores it as it is now; a new revision.
  Result<void> save(Drain& drain);

  [[nodiscard]] Drain* find(DrainId id);
  [[nodiscard]] std::map<DrainId, Drain>& all() { return drains_; }
  [[nodiscard]] const std::map<DrainId, Drain>& all() const { return drains_; }
  [[nodiscard]] Drain* open_of(const Scope& scope);
  // Whether an open one covers the place.
  [[nodiscard]] bool is_drained(const Place& place) const;
  // Removes those that are over and need not stay.
  void prune(const Retention& keep);
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  Result<void> remove(const std::vector<DrainId>& ids);

  Store& store_;
  std::map<DrainId, Drain> drains_;
  Signal changed_;
};

}  // namespace ckpt::coordinator
