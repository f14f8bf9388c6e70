// SPDX-License-Identifier: Apache-2.0
// A coordinator whose store was lost, or is an older copy, learns from its agents what runs
// (docs/protocol.md, "A coordinator that has lost its store"). Jobs that it does not know are recovered with
// the command that their node has. Jobs that run as a later incarnation than it knows are shown where they
// run. Switches without a record are asked about at both sides. Nothing that runs is stopped. GET
// /v1/recovery shows the findings since this coordinator started, and what no agent can report.
//
// Nothing is taken in but in the window that an admin opens (recovery_window.h); outside of it what would be is shown.
// What was taken in is moved by nobody but users, until an admin confirms it (Job::unconfirmed).
//
// Where the store is whole little is left to it. A job that was lost with its node runs on when that node is back. One
// that left its node for another that no node shows is lost.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: a job or
// switch that a node does not describe is logged, and asked for again at its next connection.
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

  // Before the job table takes the node's inventory.
  void on_ready(const Node& node);
  void on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;
  [[nodiscard]] RecoveryWindow& window() noexcept { return window_; }

 private:
  using Instance = std::tuple<std::string, JobId, Incarnation>;
  struct Found {
    std::int64_t time_ms = 0;
    std::string kind;  // "job", "later-incarnation", "switch", "cluster", "left"
    std::string node;
    JobId job = 0;
    MigrationId migration = 0;
    std::string text;
    bool taken_in = true;
  };

  // The images of the node show that the cluster had this id.
  void on_cluster_recognised(const std::string& node, const std::string& cluster);
  control::Task<> look_at(std::string node);
  control::Task<> recover_switches(std::string node);
  control::Task<> take_in_strangers(std::string node);
  Result<void> recover(const std::string& node, wire::SwitchFacts facts);
  void take_in(const std::string& node, JobId job, Incarnation incarnation, wire::JobSpec spec);
  void begin_to_look(const Node& node);
  void find_later(const Node& node, const wire::JobInstance& instance);
  void find_left(const Node& node);
  [[nodiscard]] bool is_stranger(const Node& node, const wire::JobInstance& instance) const;
  [[nodiscard]] bool is_known(const wire::OpenSwitch& open) const;
  [[nodiscard]] bool has_unknown_switch(const Node& node, JobId job) const;
  void note(Found found);
  // Once for each thing, since nothing follows from it.
  void show_only(Found found, Incarnation incarnation);
  void on_window();
  void count_ids(const Node& node);
  Result<HttpResponse> open_window(const HttpRequest& request);
  Result<HttpResponse> confirm(const HttpRequest& request);
  void show_strangers(const Node& node);
  [[nodiscard]] HttpResponse answer() const;
  [[nodiscard]] std::vector<api::UndecidedMigration> undecided() const;
  [[nodiscard]] api::Recovery view() const;

  static constexpr std::size_t kMaxFound = 2'000;  // the newest are shown

  Dependencies deps_;
  RecoveryWindow window_;
  std::set<std::tuple<std::string, JobId, Incarnation>> shown_;  // while the window is closed
  std::deque<Found> found_;
  std::set<std::string> looking_;
  std::set<Instance> not_described_;  // until their node connects again
  std::map<JobId, std::chrono::steady_clock::time_point> left_since_;
};

}  // namespace ckpt::coordinator
