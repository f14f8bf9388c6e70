// SPDX-License-Identifier: Apache-2.0
// Drains: cordons a node or a GPU and moves every job away, as many at a time as allowed, until it is empty,
// the deadline has come or nothing can be moved any more. Each step is stored before the next: a coordinator
// that was killed goes on where it was, and finds the migrations that it had begun by their jobs.
//
// A job that cannot be moved now is looked at again whenever jobs, nodes or migrations have changed; nothing
// here waits for time but the deadline. The limit counts every open migration out of the node, whoever began
// it.
// Threads: one io_context on one thread. Ownership: drains live here, those that are over until forget_old();
// ids stay theirs for ever. Borrows its parts, which outlive it. Errors: kNotFound, kRefused, kNotSupported:
// nothing was touched; those of the store.
#pragma once

#include <map>

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/images/images.h"
#include "coordinator/maintenance/drain.h"
#include "coordinator/operations/service.h"

namespace ckpt::coordinator {

struct DrainRequest {
  DrainRequest() = default;
  Scope scope;
  std::uint32_t parallel = 2;
  std::int64_t deadline_ms = 600'000;  // from now
  Fallback fallback = Fallback::kLeave;
  std::string reason;
};

class DrainTable {
 public:
  struct Parts {
    Store& store;
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    MigrationTable& migrations;
    CordonTable& cordons;
    Service& service;
    control::asio::any_io_executor executor;
  };
  explicit DrainTable(Parts parts);
  // Null (as at first): there are no images to fall back on.
  void set_images(Images* images) { images_ = images; }

  Result<void> load();
  // Takes up what was open; once, after load() of everything.
  void resume();
  // A node said what it has: memory may be free where there was none.
  void on_inventory();

  struct Begun {
    DrainId id = 0;
    bool joined = false;  // one of this place was running already: with its own settings
  };
  Result<Begun> begin(const DrainRequest& request);
  // Begins no further moves; those that are open go on to their end. The cordon stays.
  Result<void> cancel(DrainId id, const std::string& why);
  void cancel_of(const Scope& scope, const std::string& why);

  struct Prospect {
    DrainJob job;  // state kWaiting: it would be moved to `to`; kBlocked: it could not, for `reason`
    bool passing = false;
    std::optional<ExpectedPause> pause;  // that the move would be
  };
  // What begin() would do, in its order. Touches nothing.
  Result<std::vector<Prospect>> dry_run(const DrainRequest& request);

  [[nodiscard]] const Drain* find(DrainId id) const;
  [[nodiscard]] const std::map<DrainId, Drain>& all() const { return drains_; }
  [[nodiscard]] const Drain* open_of(const Scope& scope) const;
  // Removes those that are over and need not stay.
  void forget_old(const Retention& keep);
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  // What need not survive: what was tried at which news.
  struct Memory {
    std::map<JobId, std::uint64_t> planned_at;   // generation_
    std::map<JobId, std::uint64_t> retry_after;  // inventories_
    std::map<JobId, Place> failed_at;
  };
  using Clock = std::chrono::steady_clock;

  control::Task<> expect_nodes();
  control::Task<> run(DrainId id);
  // The next moment to look again whatever happens; nullopt: it is over.
  std::optional<Clock::time_point> step(DrainId id);
  // What has become of the jobs; true: some are on their way to the place.
  bool reconcile(Drain& drain);
  void look_at(Drain& drain, DrainJob& entry, const Job& job);
  void on_migration_ended(Drain& drain, DrainJob& entry, const Migration& migration);
  void start_moves(Drain& drain);
  void move(Drain& drain, DrainJob& entry, const Job& job);
  bool begin_move(Drain& drain, DrainJob& entry, const Job& job, const MigratePlan& plan);
  void restore_some(Drain& drain, bool deadline_passed);
  control::Task<> restore(DrainId id, JobId job);
  [[nodiscard]] unsigned leaving(const std::string& node) const;
  void add(Drain& drain, const Job& job);
  void tell(const Drain& drain, const DrainJob& entry);
  Result<void> save(Drain& drain);
  Result<void> remove(const std::vector<DrainId>& ids);

  Parts parts_;
  Images* images_ = nullptr;
  std::map<DrainId, Drain> drains_;
  std::map<DrainId, Memory> memory_;
  std::uint64_t generation_ = 1;   // grows at each change that may make room or a job movable
  std::uint64_t inventories_ = 1;  // grows at each inventory
  std::uint64_t wakes_ = 0;
  Signal wake_;
  Signal changed_;
};

}  // namespace ckpt::coordinator
