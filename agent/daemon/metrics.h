// SPDX-License-Identifier: Apache-2.0
// The metrics of this node for GET /metrics; every name is in docs/metrics.md, and a test compares. Parts of
// the agent that have something to show add it as parts of the coordinator do
// (coordinator/operations/metrics.h). Movers and jobs are never queried: their reports pass through here on
// the way to the coordinator, a few times a second.
// Threads: the event loop. Ownership: borrows the port to the coordinator and the objects in the sources.
// Errors: none.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "agent/gpus/inventory.h"
#include "agent/migration/migrations.h"
#include "libckpt/net/metrics/registry.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

class Metrics : public CoordinatorPort {
 public:
  struct Sources {
    std::function<bool()> connected;  // to the coordinator
    const Inventory& inventory;
    const JobTable& jobs;
    const std::map<std::uint32_t, std::shared_ptr<MoverProcess>>& movers;
    std::function<bool(wire::MigrationId)> sends;  // the migration is open, and this node is its source
  };
  Metrics(const std::string& node, CoordinatorPort& coordinator, Sources sources);

  [[nodiscard]] metrics::Registry& registry() noexcept { return registry_; }
  [[nodiscard]] const metrics::Registry& registry() const noexcept { return registry_; }

  bool send(const wire::CommitMessage& message) override { return coordinator_.send(message); }
  bool send(const wire::MigrationProgress& progress) override;
  bool send(const wire::SourceReport& report) override { return coordinator_.send(report); }
  bool send(const wire::TargetReport& report) override { return coordinator_.send(report); }

 private:
  void observe_node();
  void observe_movers();
  void observe_transfers();
  void drop_closed();

  CoordinatorPort& coordinator_;
  Sources sources_;
  metrics::Registry registry_;  // before the counters made of it
  metrics::Counters sent_bytes_;
  std::map<wire::MigrationId, wire::MigrationProgress> transfers_;  // the last of each, while it is open
};

}  // namespace ckpt::agent
