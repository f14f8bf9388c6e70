// SPDX-License-Identifier: Apache-2.0
// The table of drains, as stored. Finished drains stay until prune(). Ids are never reused.
// Threads: one io_context on one thread. Ownership: owns the drains; borrows the store, which outlives it.
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
  // Stores the drain under a new id, and returns the id.
  Result<DrainId> add(Drain drain);
  // Stores the drain's current state with a new revision.
  Result<void> save(Drain& drain);

  [[nodiscard]] Drain* find(DrainId id);
  [[nodiscard]] std::map<DrainId, Drain>& all() { return drains_; }
  [[nodiscard]] const std::map<DrainId, Drain>& all() const { return drains_; }
  [[nodiscard]] Drain* open_of(const Scope& scope);
  // Returns whether an open drain covers the place.
  [[nodiscard]] bool is_drained(const Place& place) const;
  // Removes the finished drains that `retention` does not keep.
  void prune(const Retention& retention);
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  Result<void> remove(const std::vector<DrainId>& ids);

  Store& store_;
  std::map<DrainId, Drain> drains_;
  Signal changed_;
};

}  // namespace ckpt::coordinator
