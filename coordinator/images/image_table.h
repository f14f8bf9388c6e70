// SPDX-License-Identifier: Apache-2.0
// Images of jobs: takes them by order and by protection's schedule, knows what the vaults hold, and carries a
// job into an image and out of it again (suspend, park, restore, resume).
//
// Never two instances: a job goes on from an image only once every instance before is known to have ended, by
// its node's word, or by the operator's (`--force`). What turns up later with an incarnation of then is ended
// (Job::fenced, JobTable::set_fence). An operation is a part of the job's record and durable before each
// order; after a restart it goes on (image_operation.h).
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: those of
// Images; kInvalidArgument.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>

#include "coordinator/images/contents_parts.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/images/image_operation.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/images/protection_schedule.h"
#include "coordinator/operations/service.h"
#include "coordinator/placement/resume_order.h"

namespace ckpt::coordinator {

struct ProtectRequest {
  ProtectRequest() = default;
  std::int64_t every_ms = 0;
  std::string to;  // NODE, or an absolute folder; empty: the job's own node
  std::uint32_t keep = 2;
  bool force = false;  // a transparent job more often than every 5 minutes
  bool dry_run = false;
};

struct Protected {
  Protected() = default;
  Protection protection;
  std::optional<double> expected_pause_ms;  // of each snapshot, as far as one can tell
  std::string note;
};

struct RestoreWish {
  RestoreWish() = default;
  std::string verb = "restore";
  std::string why;
  std::string to = "auto";
  std::optional<Image> image;  // else the newest
  bool force = false;          // the operator's word: what cannot be reached is dead
  bool by_user = true;
  PlanHints hints;  // what others have a claim on
};

class ImageTable : public Images {
 public:
  struct Parts {
    Store& store;
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    MigrationTable& migrations;
    Service& service;
    const Config& config;
    control::asio::any_io_executor executor;
  };
  explicit ImageTable(Parts parts);

  // Once, after the jobs and before agents may connect: takes up what was open.
  Result<void> load();

  // While it says so, parked jobs do not come back by themselves: the room is being made for somebody.
  void set_resume_gate(std::function<bool()> room_is_made) { room_is_made_ = std::move(room_is_made); }

  // The port for other parts of the coordinator.
  [[nodiscard]] std::optional<Image> newest(JobId job) const override;
  control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string why) override;
  control::Task<Result<void>> park(JobId job, bool snapshot, std::string why) override;

  // What people ask for. Those that return a task have begun it: it goes on by itself.
  Result<Protected> protect(JobId id, const ProtectRequest& wish);
  Result<void> unprotect(JobId id);
  control::Task<Result<TaskId>> begin_snapshot(JobId id, std::string to);
  control::Task<Result<TaskId>> begin_suspend(JobId id, std::string to);
  control::Task<Result<TaskId>> begin_restore(JobId id, RestoreWish wish);
  // Of a job that is not known any more: it comes back as a new one, which takes its name. With `wish.image`.
  control::Task<Result<TaskId>> begin_revival(RestoreWish wish);
  control::Task<Result<void>> remove(ImageId id, bool force);

  // What goes before an operation (image_cancel.cc). A snapshot is being taken that gives way to a migration.
  [[nodiscard]] bool is_stored(JobId id) const { return snapshots_.contains(id); }
  // Has a job's last snapshot given up, so that it runs on; false: it cannot be, or not any more. The
  // operation ends a moment later.
  bool give_up_parking(JobId id, const std::string& why);
  // Stops a job in whatever stage its operation is; false: it has none.
  Result<bool> stop_operation(JobId id, std::int64_t grace_ms);

  [[nodiscard]] const ImageCatalog& catalog() const { return catalog_; }
  void watch_cluster(ImageCatalog::Recognised recognised) { catalog_.watch_cluster(std::move(recognised)); }
  // The newest whole image of each job that this coordinator does not know.
  [[nodiscard]] std::vector<Image> of_unknown_jobs() const;
  // The newest whole image of a job that this coordinator does not know, by its id or name, where a node says
  // that the job left it. kNotFound; kRefused where it may still run on a node that is not connected, or
  // where several jobs are meant.
  [[nodiscard]] Result<Image> image_of_unknown(const std::string& id_or_name) const;
  [[nodiscard]] ImageTasks& tasks() { return tasks_; }
  [[nodiscard]] bool is_readable(const Image& image) const;

 private:
  // Another store gave its id: that of before this one.
  [[nodiscard]] bool is_unknown_job(JobId id) const;
  // Where a snapshot goes.
  struct Destination {
    Destination() = default;
    std::string folder;
    std::string node;  // with an empty folder: in its own vault; empty: where the job runs
  };
  // A snapshot. Its job may leave the node meanwhile.
  struct Taking {
    Taking() = default;
    Taking(TaskId shown, std::string at, std::string vault)
        : task(shown), node(std::move(at)), owner(std::move(vault)) {}
    TaskId task = 0;
    std::string node;     // that takes it
    std::string owner;    // whose vault it goes to
    bool failed = false;  // as its node says, whatever becomes of its answer
  };
  struct Backoff {
    unsigned failures = 0;
    std::chrono::steady_clock::time_point until;
  };
  using StepTaken = Result<void>;

  // image_table.cc
  void take_frames();
  void on_report(const Node& node, const wire::SnapshotReport& report);
  void on_restored(const Node& node, const wire::RestoreReport& report);
  [[nodiscard]] const wire::RestoreReport* restore_report_of(const Job& job) const;
  void on_contents(const Node& node, const wire::VaultContents& contents);
  control::Task<> wait_for_news() const;

  // image_snapshots.cc
  Result<Destination> destination_of(const std::string& to) const;
  [[nodiscard]] std::string why_no_snapshot(const Job& job) const;
  control::Task<Result<void>> wait_until_free(JobId id);
  Result<wire::TakeSnapshot> order_of(const Job& job, const Destination& to, bool end_after);
  [[nodiscard]] SnapshotFacts facts_of(const Job& job, const std::string& owner,
                                       const std::string& folder) const;
  control::Task<Result<void>> take_snapshot(JobId id, Destination to, TaskId task);
  control::Task<> snapshot_task(JobId id, Destination to, TaskId task);
  control::Task<> protect_once(JobId id);
  void note_protected(JobId id, const Result<void>& taken);
  control::Task<> run_schedule();
  [[nodiscard]] std::optional<std::string> where_now(JobId id) const;

  // image_peers.cc
  [[nodiscard]] static std::string vault_node(const Job& job, const Destination& to);
  [[nodiscard]] static Destination kept_at(const Protection& protection);
  control::Task<Result<wire::VaultPeer>> ask_for_vault(std::string owner, std::string user,
                                                       wire::GrantVault request);
  control::Task<> give_vault_back(wire::VaultPeer peer);
  control::Task<Result<void>> order_snapshot(std::string node, std::string owner, wire::TakeSnapshot order,
                                             std::chrono::milliseconds limit);

  // image_requests.cc
  Result<void> may_restore(JobId id, const RestoreWish& wish) const;
  Result<Image> image_for(const Job& job, const RestoreWish& wish) const;
  control::Task<Result<Place>> choose_place(JobId id, Image image, RestoreWish wish);
  [[nodiscard]] Incarnation highest_known(const Job& job) const;
  Result<TaskId> begin_operation(JobId id, ImageOperation operation);
  control::Task<Result<TaskId>> begin_parking(JobId id, Destination to, ImageOperation operation);
  [[nodiscard]] std::vector<ParkedJob> resting() const;
  void resume_parked();
  control::Task<> resume_one(JobId id, PlanHints claims);

  // image_collection.cc
  void note_ends();
  control::Task<> collect_images();
  control::Task<> sweep_images();

  // image_cancel.cc
  control::Task<Result<void>> cancel_parking(JobId id, std::string why);
  void tell_given_up(JobId id);
  control::Task<> give_up_snapshot(JobId id, std::string node, Incarnation incarnation);
  control::Task<> cancel_last_snapshot(JobId id);
  void stop_after(JobId id, const ImageOperation& operation);
  [[nodiscard]] bool is_expired(JobId id) const;
  [[nodiscard]] Error why_given_up(const Job& job) const;
  void close_expired_task(JobId id);
  [[nodiscard]] std::chrono::steady_clock::time_point operation_deadline() const;

  // image_operations.cc
  void drive(JobId id);
  control::Task<> carry_on(JobId id);
  [[nodiscard]] OperationView view_of(const Job& job) const;
  control::Task<> perform(JobId id, OperationStep step);
  [[nodiscard]] std::chrono::milliseconds time_left(JobId id) const;
  control::Task<> take_last_snapshot(JobId id);
  control::Task<> ask_vault(JobId id);
  control::Task<> end_instances(JobId id);
  control::Task<Result<void>> was_started(ImageOperation operation, wire::RestoreImage order, Error why);
  control::Task<Result<void>> order_start(ImageOperation operation, wire::RestoreImage order);
  control::Task<> start_restored(JobId id);
  Result<void> ended(JobId id);
  Result<void> parked(Job job, const std::string& why);
  Result<void> to_starting(Job job);
  [[nodiscard]] Restored restored_of(const Job& job) const;
  Result<void> runs(JobId id);
  Result<void> abandon(JobId id, const Error& why);
  Result<void> not_started(JobId id, const Error& why);
  void close_task(JobId id, const std::optional<Error>& error, int exit_code);

  Parts parts_;
  ContentsParts lists_;
  ImageCatalog catalog_;
  ImageNumbers numbers_;
  ImageTasks tasks_;
  ProtectionSchedule schedule_;
  std::map<JobId, Taking> snapshots_;              // being taken
  std::map<JobId, wire::SnapshotReport> reports_;  // the last good one
  std::map<JobId, wire::RestoreReport>
      restored_;                             // what the newest instance was started from, as its node says
  std::map<JobId, TaskId> operation_tasks_;  // of open operations
  std::set<JobId> driven_;                   // operations with a coroutine
  std::map<JobId, std::chrono::steady_clock::time_point>
      deadlines_;  // of open operations, since here or the restart
  std::map<JobId, std::chrono::steady_clock::time_point> vault_away_;  // since when theirs does not answer
  std::set<JobId> vault_known_;                                        // OperationView::vault_known
  std::map<JobId, Backoff> backoffs_;                                  // of resuming
  std::set<JobId> resuming_;                                           // by itself, now
  std::function<bool()> room_is_made_;                                 // may be empty
};

}  // namespace ckpt::coordinator
