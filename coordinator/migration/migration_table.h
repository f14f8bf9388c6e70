// SPDX-License-Identifier: Apache-2.0
// The migrations that users see: their facts, indexes and rows in the store. MigrationRunner changes them.
// The journal decides, and the table only shows.
//
// Queries about all migrations visit only the open ones (open()). Queries about a job use its index.
// Threads: one io_context on one thread. Ownership: owns the migrations until remove_old(). Pointers are
// valid until then, and those to open migrations for as long as they are open. Errors: load() and create()
// return those of the store; later errors are logged.
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

// A GPU that a move in preparation will use. The move has no migration yet.
struct MoveClaim {
  Place from;
  Place to;
  std::uint64_t bytes = 0;  // the memory that the rank needs on the claimed GPU
};

class MigrationTable {
 public:
  MigrationTable(Store& store, control::asio::any_io_executor executor)
      : store_(store), changed_(std::move(executor)) {}

  Result<void> load();

  // Assigns an id to the migration, stores the migration, and then adds it to the table.
  Result<Migration*> create(Migration migration);
  // Adds a migration that the store does not have. save() stores it.
  Migration& insert(Migration migration);
  // Marks ids up to this one as assigned, because the store may not know of them.
  Result<void> skip_ids_to(MigrationId id) { return store_.count_above(0, id); }
  void save(Migration& migration);
  // Increases the migration's revision and notifies waiters, for a change that need not be stored.
  void touch(Migration& migration);
  // Records that the migration has ended now. Its plan is dropped. The caller saves the migration.
  void close(Migration& migration);

  // These functions set and return the plans of open migrations.
  void store_plan(MigrationId id, wire::MigrationPlan plan) { plans_[id] = std::move(plan); }
  [[nodiscard]] const wire::MigrationPlan* plan_of(MigrationId id) const;

  [[nodiscard]] Migration* find(MigrationId id);
  [[nodiscard]] const Migration* find(MigrationId id) const;
  // Returns the full id for `given`, whose tag may be omitted.
  [[nodiscard]] std::optional<MigrationId> find_meant(MigrationId given) const;
  // Returns whether the migration is or was in the table.
  [[nodiscard]] bool knows(MigrationId id) const { return migrations_.contains(id) || was_removed(id); }
  [[nodiscard]] bool was_removed(MigrationId id) const;
  [[nodiscard]] MigrationId removed_up_to() const { return removed_up_to_; }
  // Returns all migrations, for listings. visited() counts the migrations that this function and open()
  // return.
  [[nodiscard]] const std::map<MigrationId, Migration>& all() const {
    visited_ += migrations_.size();
    return migrations_;
  }
  // Returns the open migrations, ordered by id.
  [[nodiscard]] std::vector<std::reference_wrapper<const Migration>> open() const;
  [[nodiscard]] const std::set<MigrationId>& open_ids() const { return index_.open(); }
  [[nodiscard]] const Migration* open_of(JobId job) const;
  [[nodiscard]] std::set<MigrationId> of(JobId job) const { return index_.of(job); }
  [[nodiscard]] bool is_newest_of_job(const Migration& migration) const;
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }
  [[nodiscard]] std::uint64_t visited() const { return visited_; }
  // Returns whether the job's newest migration is decided but not all its reports have arrived.
  [[nodiscard]] bool is_closing(JobId job) const;

  // Sets the GPUs that a move of the whole job in preparation will use. An empty list means that the move is
  // no longer in preparation.
  void claim(JobId whole, std::vector<MoveClaim> claims);
  [[nodiscard]] const std::map<JobId, std::vector<MoveClaim>>& claims() const { return claims_; }

  // Records that a side may not yet know how the migration ended.
  void mark_unsettled(MigrationId id) { unsettled_.insert(id); }
  void mark_settled(MigrationId id);
  [[nodiscard]] const std::set<MigrationId>& unsettled() const { return unsettled_; }
  // Returns whether a migration of the job is open or unsettled.
  [[nodiscard]] bool unsettled_of(JobId job) const;
  // Stores which migrations were settled since the last call, in one transaction.
  void store_settled();
  // Returns whether the migration is settled and the store has recorded that.
  [[nodiscard]] bool is_settled_in_store(const Migration& migration) const;

  // Removes some of the closed migrations that `retention` does not keep, the oldest first. Returns their
  // ids, at most Retention::kBatch.
  std::vector<MigrationId> remove_old(const Retention& retention,
                                      const std::function<bool(const Migration&)>& may_leave);

  [[nodiscard]] Signal& changed() { return changed_; }
  // Returns the listeners for jobs whose migration has been decided, or has started the job at a side.
  [[nodiscard]] Listeners<JobId>& moved() { return moved_; }
  // Returns the listeners for moves of ranks to abort, and for moves whose disconnected nodes the operator
  // has confirmed to run nothing.
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
  std::map<JobId, std::vector<MoveClaim>> claims_;  // the claims of moves in preparation, by whole job
  std::set<MigrationId> unsettled_;
  std::set<MigrationId> unsaved_settled_;
  MigrationId removed_up_to_ = 0;  // all ids up to this one that the table lacks were removed
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
};

}  // namespace ckpt::coordinator
