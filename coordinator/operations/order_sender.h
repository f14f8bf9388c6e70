// SPDX-License-Identifier: Apache-2.0
// Sends the orders that are due for jobs (lifecycle/order_rules.h): ends of instances, proofs that nothing is left, aborts
// of moves. It looks at a job when the job has changed and when one of its nodes reports; again, where an order has
// failed. Every living instance gets its end once on each connection.
//
// No order leaves while the row that it follows from is not stored. Each second the rules among ranks are tried again.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: none;
// what cannot be sent now is sent at the next look.
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

  // Once, after everything has been loaded.
  void start();

  // Ends instances that must not run; before the job's own machine takes the report.
  void fence(const Node& node, const wire::JobInstance& instance);
  // The rest of what is due, behind it.
  void on_inventory(const Node& node);
  void on_instance(const wire::JobInstance& instance) { send(instance.job); }
  void on_lost(const Node& node);

  // Asks the node whether anything of the job lives, for at most 10 s. Returns when it has answered, or at once while it is
  // being asked.
  control::Task<> prove(JobId id, std::string node);

 private:
  using Sent = std::pair<JobId, lifecycle::EndOrder>;

  control::Task<> run();
  void send_later(JobId id);
  void retry(JobId id, std::chrono::steady_clock::duration after);
  void send_retries();
  void send(JobId id);
  // True: it was sent now.
  bool abort(JobId id, const Migration& open);
  void send(JobId id, const lifecycle::EndOrder& order);
  control::Task<> ask(JobId id, lifecycle::ProofOrder order);
  // The open migration of the job, or of a rank that it moves with; null: there is none.
  [[nodiscard]] const Migration* open_of(const Job& job) const;

  Dependencies deps_;
  std::set<Sent> sent_;
  std::set<MigrationId> aborted_;  // by this coordinator
  std::set<std::pair<JobId, std::string>> asked_;
  std::map<JobId, std::chrono::steady_clock::time_point> retries_;  // when each is due
};

}  // namespace ckpt::coordinator
