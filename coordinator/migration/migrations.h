// SPDX-License-Identifier: Apache-2.0
// The table of migrations that people see, and what is asked of them. SwitchDriver (switch_driver.h) runs
// their machines.
//
// The journal decides; the table is what can be shown. What is asked of a migration waits while one of its
// records is being written: caught_up() and begun() say when it is done. A journal that refuses cleanly (full
// disk) fails the migration at hand. A record of unknown fate ends the process through `fatal`, and the
// restart reads what is there.
// What is asked about all migrations goes over the open ones (open()), what is asked of a job by its index.
// Threads: one io_context on one thread. Ownership: migrations live here until forget_old(); pointers are
// valid until then, and those to open ones for as long as they are open.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/migration/switch_driver.h"
#include "coordinator/state/retention.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

class MigrationTable : private SwitchEffects {
 public:
  struct Parts {
    Store& store;
    StoreSync& sync;
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    control::asio::any_io_executor executor;
  };
  MigrationTable(Parts parts, migration::Journal journal, migration::Timing timing,
                 std::function<void(const Error&)> fatal);

  // Once, before agents may connect.
  Result<void> restore();

  struct Request {
    Place to;
    wire::MigrateOptions options;
    std::int64_t timeout_ms = 0;
    std::string why;
  };
  // Everything that can be refused without asking the nodes has been checked by the caller. A journal without
  // room closes it as refused, later.
  Result<Migration*> begin(const Job& job, const Request& request, wire::MigrationPlan plan);
  // Returns when its begin is durable, or with why the journal refused it.
  control::Task<Result<Migration*>> begun(MigrationId id);
  // A switch that `node` has open and no record here speaks of: its sides are asked, and their records
  // decide. kInvalidArgument for what is no switch of that node.
  Result<void> recover(const std::string& node, migration::SwitchInfo info);
  // It is in the table, or was.
  [[nodiscard]] bool knows(MigrationId id) const { return migrations_.contains(id) || was_removed(id); }
  // One of its migrations is open, or a side may not know yet how it ended.
  [[nodiscard]] bool unsettled_of(JobId job) const;
  Result<void> abort(MigrationId id, const std::string& why);
  control::Task<Result<void>> resolve(MigrationId id, Side side);
  // Returns when what was asked of it up to now is done, its records durable.
  control::Task<> caught_up(MigrationId id) { return driver_.caught_up(id); }
  control::Task<Result<migration::Journal::Copy>> copy_journal() { return driver_.copy_journal(); }
  control::Task<Result<void>> set_limits(MigrationId id, std::optional<std::int64_t> max_downtime_ns,
                                         std::optional<std::uint64_t> bandwidth);

  // Told of each job whose migration has been decided, or has let it run somewhere. Set before agents may
  // connect.
  void watch(std::function<void(JobId)> moved) { moved_ = std::move(moved); }

  void on_node_ready(const Node& node);
  void on_node_lost(const Node& node);
  void on_switch(const Node& node, const wire::SwitchMessage& message);
  void on_progress(const Node& node, const wire::MigrationProgress& progress);
  void on_source_report(const Node& node, const wire::SourceReport& report);
  void on_target_report(const Node& node, const wire::TargetReport& report);

  [[nodiscard]] const Migration* find(MigrationId id) const;
  // For listings; what it and open() hand out is counted.
  // What a person means by an id without its tag.
  [[nodiscard]] std::optional<MigrationId> find_meant(MigrationId said) const;
  [[nodiscard]] const std::map<MigrationId, Migration>& all() const {
    visited_ += migrations_.size();
    return migrations_;
  }
  [[nodiscard]] std::vector<std::reference_wrapper<const Migration>> open() const;  // by id
  [[nodiscard]] const Migration* open_of(JobId job) const;
  // Its newest is decided, and not all reports have come: the source's report may have come before what the
  // target said earlier.
  [[nodiscard]] bool is_closing(JobId job) const;
  [[nodiscard]] std::set<MigrationId> of(JobId job) const;
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }
  [[nodiscard]] std::uint64_t visited() const { return visited_; }

  // Removes some of the closed ones that need not stay, the oldest first. One stays of which an agent may ask
  // still, and the newest of a job that has not ended. True: it removed as many as it may at a time.
  bool forget_old(const Retention& keep);
  // Which ended ones nobody will ask about any more, as far as was learnt since the last call; in one
  // transaction.
  void store_settled();
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  // SwitchEffects.
  void taking(MigrationId id, const migration::CoordinatorEvent& event) override;
  void send(const migration::SwitchInfo& info, const migration::Send& said) override;
  void report(const migration::SwitchInfo& info, const migration::Report& report) override;
  void not_begun(MigrationId id, const Error& why) override;
  void handled(MigrationId id) override;
  [[nodiscard]] std::chrono::milliseconds duration(MigrationId id,
                                                   const migration::ArmTimer& timer) const override;
  control::Task<Result<Forget>> forgettable() override;

  void tell_presence(const Node& node, bool connected);

  void on_report(Migration& migration, const migration::Report& report);
  void enter(Migration& migration, MigrationPhase phase);
  void runs_at(Migration& migration, Side side, Incarnation k);
  // What the owner of a decided migration's job says it runs as.
  void take_owners_word(MigrationId id);
  void decide(Migration& migration, MigrationResult result, const std::string& error);
  void settle_when_measured(Migration& migration);
  [[nodiscard]] bool stands_still(const Migration& migration) const;
  void settle_again();
  void close(Migration& migration);
  void adopt_outcome(Migration& migration);
  void save(Migration& migration);
  void touch(Migration& migration);
  Migration& entry(const migration::SwitchInfo& info);
  void index(const Migration& migration);
  void erase(MigrationId id);
  void look_whether_settled(MigrationId id);
  [[nodiscard]] bool may_leave(const Migration& migration) const;
  [[nodiscard]] bool was_removed(MigrationId id) const;
  Migration* checked(MigrationId id, const Node& node, Side side);
  [[nodiscard]] const std::string& node_of(const Migration& migration, wire::Party party) const;

  Parts parts_;
  std::function<void(JobId)> moved_ = [](JobId) {};
  std::map<MigrationId, Migration> migrations_;
  std::map<MigrationId, wire::MigrationPlan> plans_;  // of open ones
  std::set<MigrationId> open_;
  std::map<JobId, MigrationId> open_of_job_;  // the newest; few, whatever is behind
  std::map<JobId, std::set<MigrationId>> of_job_;
  std::set<MigrationId> unsettled_;  // sides may not know yet how they ended
  std::set<MigrationId> unsaved_settled_;
  MigrationId removed_up_to_ = 0;  // of these, those that the table does not know were removed
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
  std::map<MigrationId, std::shared_ptr<control::asio::steady_timer>> settle_timers_;
  Signal changed_;
  SwitchDriver driver_;
};

}  // namespace ckpt::coordinator
