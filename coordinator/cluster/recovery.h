// SPDX-License-Identifier: Apache-2.0
// The recovery of a coordinator whose store was lost or is an older copy. It learns from its agents what runs
// (docs/protocol.md, "A coordinator that has lost its store"). Unknown jobs are recovered with the command
// that their node has recorded. Jobs with a later incarnation than the store has are shown where they run.
// Handovers without a record are queried at both sides. Nothing that runs is stopped. GET /v1/recovery shows
// the findings since this coordinator started, and facts that no agent can report.
//
// Jobs and handovers are adopted only during the window that an admin opens (recovery_window.h). Outside of
// the window they are only shown. Until an admin confirms a job that was taken in, only an order of a user
// may move the job (Job::unconfirmed).
//
// With a complete store, little is left to recover. A job that was lost with its node continues when that
// node is back. A job that left its node for another is lost if no node reports the job.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: a job or
// handover that a node does not describe is logged, and requested again at the node's next connection.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/cluster/recovery_window.h"
#include "coordinator/fleet/job_admission.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/images/image_finder.h"
#include "coordinator/migration/migration_runner.h"
#include "coordinator/requests/api_section.h"
#include "libckpt/api/site.h"

namespace ckpt::coordinator {

class Recovery : public ApiSection {
 public:
  struct Dependencies {
    Store& store;
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    JobAdmission& admission;
    JobRunner& job_runner;
    const MigrationTable& migrations;
    MigrationRunner& migration_runner;
    GangMoves& gang_moves;
    ImageCatalog& catalog;
    const ImageFinder& images;
    control::asio::any_io_executor executor;
  };
  explicit Recovery(Dependencies deps);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // Looks for handovers and jobs of a connected node that the store does not know. Call this before the job
  // table processes the node's inventory.
  void on_ready(const Node& node);
  void on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;
  [[nodiscard]] RecoveryWindow& window() noexcept { return window_; }

 private:
  using Instance = std::tuple<std::string, JobId, Incarnation>;
  struct Found {
    std::int64_t time_ms = 0;
    std::string kind;  // the kind of finding: "job", "later-incarnation", "lost-job", "switch", "cluster" or
                       // "left"
    std::string node;
    JobId job = 0;
    MigrationId migration = 0;
    std::string text;
    bool taken_in = true;
  };

  // Records that the images of `node` show that the cluster had the id `cluster`.
  void on_cluster_recognised(const std::string& node, const std::string& cluster);
  control::Task<> inspect(std::string node);
  control::Task<> recover_handovers(std::string node);
  control::Task<> admit_unknown_instances(std::string node);
  Result<void> recover(const std::string& node, wire::HandoverFacts facts);
  void admit_instance(const std::string& node, JobId job, Incarnation incarnation, wire::JobSpec spec);
  void begin_inspection(const Node& node);
  void find_later(const Node& node, const wire::JobInstance& instance);
  void find_left(const Node& node);
  [[nodiscard]] bool is_of_unknown_job(const Node& node, const wire::JobInstance& instance) const;
  [[nodiscard]] bool is_known(const wire::OpenHandover& open) const;
  [[nodiscard]] bool has_unknown_handover(const Node& node, JobId job) const;
  void note(Found found);
  // Shows a finding without acting on it. Each finding is shown once.
  void show_only(Found found, Incarnation incarnation);
  void on_window();
  void count_ids(const Node& node);
  Result<HttpResponse> open_window(const HttpRequest& request);
  Result<HttpResponse> confirm(const HttpRequest& request);
  void show_unknown_jobs(const Node& node);
  [[nodiscard]] HttpResponse answer() const;
  [[nodiscard]] std::vector<api::UndecidedMigration> undecided() const;
  [[nodiscard]] api::Recovery view() const;

  static constexpr std::size_t kMaxFound = 2'000;  // the maximum number of stored findings; a new finding
                                                   // replaces the oldest

  Dependencies deps_;
  RecoveryWindow window_;
  std::set<std::tuple<std::string, JobId, Incarnation>> shown_;  // findings that were shown while the window
                                                                 // is closed
  std::deque<Found> found_;
  std::set<std::string> inspecting_;
  std::set<Instance> not_described_;  // instances that their node did not describe; cleared when that node
                                      // connects again
  std::map<JobId, std::chrono::steady_clock::time_point> left_since_;
};

}  // namespace ckpt::coordinator
