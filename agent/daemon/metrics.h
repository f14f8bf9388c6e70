// SPDX-License-Identifier: Apache-2.0
// The metrics of this node for GET /metrics. docs/metrics.md lists every name, and a test compares the list
// with the code. Parts of the agent register their metrics in the same way as parts of the coordinator
// (coordinator/operations/metrics.h). Movers and jobs are never queried: the page shows what they report to
// the coordinator (transfers.h).
// Threads: the event loop. Ownership: borrows the objects in the sources. Errors: none.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "agent/daemon/transfers.h"
#include "agent/gpus/inventory.h"
#include "agent/jobs/job_table.h"
#include "agent/mover_client/mover_process.h"
#include "libckpt/net/metrics/registry.h"

namespace ckpt::agent {

class Metrics {
 public:
  struct Sources {
    std::function<bool()> connected;  // returns whether the agent is connected to the coordinator
    const Inventory& inventory;
    const JobTable& jobs;
    const std::map<std::uint32_t, std::shared_ptr<MoverProcess>>& movers;
    Transfers& transfers;
    Transfers::Open sends;
  };
  Metrics(const std::string& node, Sources sources);

  [[nodiscard]] metrics::Registry& registry() noexcept { return registry_; }
  [[nodiscard]] const metrics::Registry& registry() const noexcept { return registry_; }
  // Drops the series that the metrics page no longer shows.
  void release_closed() { sources_.transfers.drop_closed(sources_.sends); }

 private:
  void observe_node();
  void observe_movers();
  void observe_transfers();

  Sources sources_;
  metrics::Registry registry_;
};

}  // namespace ckpt::agent
