// SPDX-License-Identifier: Apache-2.0
// Sends the orders that are due for jobs (lifecycle/order_rules.h): ends of instances, proofs that no
// instance is left, and aborts of moves. A job is checked when the job has changed, when one of its nodes
// reports, and again after a failed order. Every live instance receives its end order once per connection.
//
// No order is sent while the row from which it follows is not stored. The rules among ranks are retried each
// second.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: none;
// an order that cannot be sent now is sent at the next check.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/lifecycle/order_rules.h"
#include "coordinator/migration/migration_runner.h"

namespace ckpt::coordinator {

class OrderSender {
 public:
  struct Dependencies {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    JobRunner& job_runner;
    const lifecycle::JobView& view;
    MigrationTable& migrations;
    MigrationRunner& migration_runner;
    control::asio::any_io_executor executor;
  };
  explicit OrderSender(Dependencies deps);
  OrderSender(const OrderSender&) = delete;
  OrderSender& operator=(const OrderSender&) = delete;

  // Starts the sender. Call this once, after everything has been loaded.
  void start();

  // Orders the node to end an instance that must not run, even if its job was restored and then removed. Call
  // this before the job's own state machine processes the report.
  void fence(const Node& node, const wire::JobInstance& instance);
  // Sends the other orders that are due. Call this after the job's own state machine has processed the
  // report.
  void on_inventory(const Node& node);
  void on_instance(const wire::JobInstance& instance) { send(instance.job); }
  void on_lost(const Node& node);

  // Queries the node whether any instance of the job exists, for at most 10 s. Returns when the node has
  // answered, or at once while a query is under way.
  control::Task<> prove(JobId id, std::string node);

 private:
  using Sent = std::pair<JobId, lifecycle::EndOrder>;

  control::Task<> run();
  void send_later(JobId id);
  void retry(JobId id, std::chrono::steady_clock::duration after);
  void send_retries();
  void send(JobId id);
  // Aborts the migration. Returns true if the abort was sent now.
  bool abort(JobId id, const Migration& open);
  void send(JobId id, const lifecycle::EndOrder& order);
  control::Task<> ask(JobId id, lifecycle::ProofOrder order);
  // Returns the open migration of the job, or of a rank that it moves with. Returns null if there is none.
  [[nodiscard]] const Migration* open_of(const Job& job) const;

  Dependencies deps_;
  std::set<Sent> sent_;
  std::set<MigrationId> aborted_;  // migrations that this coordinator has aborted
  std::set<std::pair<JobId, std::string>> asked_;
  std::map<JobId, std::chrono::steady_clock::time_point> retries_;  // the time of each job's next retry
};

}  // namespace ckpt::coordinator
