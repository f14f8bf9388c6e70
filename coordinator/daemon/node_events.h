// SPDX-License-Identifier: Apache-2.0
// Passes events of nodes to the parts of the coordinator, in a fixed order. The events: a node became ready,
// was lost, or reported its instances.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: none.
#pragma once

#include <set>

#include "coordinator/certificates/denied_certificates.h"
#include "coordinator/cluster/recovery.h"
#include "coordinator/fleet/node_sessions.h"
#include "coordinator/health/evacuations.h"
#include "coordinator/maintenance/drains.h"
#include "coordinator/operations/order_sender.h"
#include "coordinator/operations/service.h"

namespace ckpt::coordinator {

class NodeEvents : public NodeListener {
 public:
  struct Dependencies {
    const Config& config;
    EventLog& events;
    NodeCalls& calls;
    JobTable& jobs;
    JobRunner& job_runner;
    MigrationRunner& migration_runner;
    Recovery& recovery;
    DeniedCertificates& denied;
    OrderSender& orders;
    Service& service;
    Drains& drains;
    HealthTable& health;
    Evacuations& evacuations;
    control::asio::any_io_executor executor;
  };
  explicit NodeEvents(Dependencies deps) : deps_(std::move(deps)) {}

  void on_ready(const Node& node) override;
  void on_lost(const Node& node) override;
  void on_inventory(const Node& node) override;
  void on_instance(const Node& node, const wire::JobInstance& instance) override;

 private:
  control::Task<> start_again(JobId id);
  void send_removed_jobs(const Node& node);

  Dependencies deps_;
  std::set<JobId> starting_;  // jobs that are being started again after their node reconnected
};

}  // namespace ckpt::coordinator
