// SPDX-License-Identifier: Apache-2.0
// The table of evacuations, as stored. prune() limits the number of finished evacuations. Ids are never
// reused.
// Threads: one io_context on one thread. Ownership: owns the evacuations; borrows the store, which outlives
// it. Errors: those of the store.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "coordinator/policies/evacuation/evacuation.h"
#include "coordinator/state/retention.h"
#include "coordinator/state/store.h"

namespace ckpt::coordinator {

class EvacuationTable {
 public:
  explicit EvacuationTable(Store& store) : store_(store) {}

  Result<void> load();
  // Stores the decisions, and the writes of `beside`, in one transaction. A job that is already being
  // evacuated from the same GPU keeps its evacuation. That evacuation becomes as severe as the new one.
  Result<void> store(std::vector<Evacuation> decided, const std::function<Result<void>()>& beside);
  // Stores the evacuation's current state. Errors of the store are logged.
  void save(const Evacuation& evacuation);

  [[nodiscard]] Evacuation& at(EvacuationId id) { return evacuations_.at(id); }
  [[nodiscard]] std::map<EvacuationId, Evacuation>& all() { return evacuations_; }
  [[nodiscard]] const std::map<EvacuationId, Evacuation>& all() const { return evacuations_; }
  [[nodiscard]] const std::set<EvacuationId>& open() const { return open_; }
  [[nodiscard]] std::vector<const Evacuation*> pointers() const;
  // Removes the finished evacuations that `retention` does not keep.
  void prune(const Retention& retention);

 private:
  Result<void> remove(const std::vector<EvacuationId>& ids);

  Store& store_;
  std::map<EvacuationId, Evacuation> evacuations_;
  std::set<EvacuationId> open_;
};

}  // namespace ckpt::coordinator
