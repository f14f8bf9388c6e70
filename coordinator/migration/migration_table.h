// SPDX-License-Identifier: Apache-2.0
// The migrations that users see: their facts, indexes and rows in the store. MigrationRunner changes them.
// The journal decides, the table shows.
//
// Queries about all migrations visit the open ones (open()). Those about a job use its index.
// Threads: one io_context on one thread. Ownership: migrations live here until remove_old(); pointers are
// valid until then, and those to open ones for as long as they are open. Errors: load() and create() return
// those of the store; later ones are logged.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "coordinator/migration/migration_index.h"
#include "coordinator/state/listeners.h"
#include "coordinator/state/retention.h"
#include "coordinator/state/signal.h"
#include "coordinator/state/store.h"

namespace ckpt::coordinator {

class MigrationTable {
 public:
  MigrationTable(Store& store, control::asio::any_io_executor executor)
      : store_(store), changed_(std::move(executor)) {}

  Result<void> load();

  // Gets its id, and is stored before it is here.
  Result<Migration*> create(Migration migration);
  // One that the store does not have; save() stores it.
  Migration& insert(Migration migration);
  // Ids up to this one were given, though the store may not know it.
  Result<void> skip_ids_to(MigrationId id) { return store_.count_above(0, id); }
  void save(Migration& migration);
  // A change that is not worth storing.
  void touch(Migration& migration);
  // It has ended now, and its plan is not needed any more. The caller saves it.
  void close(Migration& migration);

  // The plans of open migrations.
  void keep_plan(MigrationId id, wire::MigrationPlan plan) { plans_[id] = std::move(plan); }
  [[nodiscard]] const wire::MigrationPlan* plan_of(MigrationId id) const;

  [[nodiscard]] Migration* find(MigrationId id);
  [[nodiscard]] const Migration* find(MigrationId id) const;
  // The id that `given` means; its tag may be left out.
  [[nodiscard]] std::optional<MigrationId> find_meant(MigrationId given) const;
  // It is in the table, or was.
  [[nodiscard]] bool knows(MigrationId id) const { return migrations_.contains(id) || was_removed(id); }
  [[nodiscard]] bool was_removed(MigrationId id) const;
  [[nodiscard]] MigrationId removed_up_to() const { return removed_up_to_; }
  // For listings; visited() counts what it and open() return.
  [[nodiscard]] const std::map<MigrationId, Migration>& all() const {
    visited_ += migrations_.size();
    return migrations_;
  }
  [[nodiscard]] std::vector<std::reference_wrapper<const Migration>> open() const;  // by id
  [[nodiscard]] const std::set<MigrationId>& open_ids() const { return index_.open(); }
  [[nodiscard]] const Migration* open_of(JobId job) const;
  [[nodiscard]] std::set<MigrationId> of(JobId job) const { return index_.of(job); }
  [[nodiscard]] bool is_newest_of_job(const Migration& migration) const;
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }
  [[nodiscard]] std::uint64_t visited() const { return visited_; }
  // Its newest migration is decided, and not all reports have come.
  [[nodiscard]] bool is_closing(JobId job) const;

  // A side may not know yet how it ended.
  void mark_unsettled(MigrationId id) { unsettled_.insert(id); }
  void mark_settled(MigrationId id);
  [[nodiscard]] const std::set<MigrationId>& unsettled() const { return unsettled_; }
  // One of its migrations is open or unsettled.
  [[nodiscard]] bool unsettled_of(JobId job) const;
  // Stores which migrations were settled since the last call, in one transaction.
  void store_settled();
  // Settled, and the store has it.
  [[nodiscard]] bool is_settled_in_store(const Migration& migration) const;

  // Removes some of the closed ones that need not stay, the oldest first, and returns their ids: at most
  // Retention::kBatch.
  std::vector<MigrationId> remove_old(const Retention& keep,
                                      const std::function<bool(const Migration&)>& may_leave);

  [[nodiscard]] Signal& changed() { return changed_; }
  // Listeners for jobs whose migration has been decided, or has let the job run somewhere.
  [[nodiscard]] Listeners<JobId>& moved() { return moved_; }
  // Listeners for moves of ranks that are to be aborted, or whose absent nodes the operator declares dead.
  [[nodiscard]] Listeners<MigrationId, AbortCause, std::string>& gang_abort_asked() {
    return gang_abort_asked_;
  }
  [[nodiscard]] Listeners<MigrationId>& gang_resolve_asked() { return gang_resolve_asked_; }

 private:
  void erase(MigrationId id);

  Store& store_;
  Signal changed_;
  Listeners<JobId> moved_;
  Listeners<MigrationId, AbortCause, std::string> gang_abort_asked_;
  Listeners<MigrationId> gang_resolve_asked_;
  std::map<MigrationId, Migration> migrations_;
  std::map<MigrationId, wire::MigrationPlan> plans_;
  MigrationIndex index_;
  std::set<MigrationId> unsettled_;
  std::set<MigrationId> unsaved_settled_;
  MigrationId removed_up_to_ = 0;  // ids up to this one that the table does not have were removed
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
};

}  // namespace ckpt::coordinator
