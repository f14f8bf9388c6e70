// SPDX-License-Identifier: Apache-2.0
// The evacuations as they are stored, and of those that are over as many as prune() leaves; ids stay
// theirs for ever.
// Threads: one io_context on one thread. Ownership: evacuations live here; borrows the store, which outlives
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
  // Stores the decisions, and the writes of `beside`, in one transaction. A job that is evacuated from there
  // already keeps its evacuation, which becomes as grave as the new one.
  Result<void> store(std::vector<Evacuation> decided, const std::function<Result<void>()>& beside);
  // As it is now; errors of the store are logged.
  void save(const Evacuation& evacuation);

  [[nodiscard]] Evacuation& at(EvacuationId id) { return evacuations_.at(id); }
  [[nodiscard]] std::map<EvacuationId, Evacuation>& all() { return evacuations_; }
  [[nodiscard]] const std::map<EvacuationId, Evacuation>& all() const { return evacuations_; }
  [[nodiscard]] const std::set<EvacuationId>& open() const { return open_; }
  [[nodiscard]] std::vector<const Evacuation*> pointers() const;
  // Removes those that are over and need not stay.
  void prune(const Retention& keep);

 private:
  Result<void> remove(const std::vector<EvacuationId>& ids);

  Store& store_;
  std::map<EvacuationId, Evacuation> evacuations_;
  std::set<EvacuationId> open_;
};

}  // namespace ckpt::coordinator
