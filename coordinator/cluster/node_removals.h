// SPDX-License-Identifier: Apache-2.0
// `node rm`: removes nodes from the cluster for good. An empty one goes at once. A lost one needs `--force`,
// and its jobs are lost. Their images may be restored once the operator states that nothing runs there any
// more (`--fenced`), or once `fence_command` has succeeded. A removed node that connects is refused
// (removed_nodes.h). Its certificates are denied; those of a lost one once its name joins again, as it still has
// orders to get. Its other jobs run on unmanaged, until `node add` lets the node in again.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kNotFound,
// kRefused naming the obstacle.
#pragma once

#include <string>
#include <vector>

#include "coordinator/certificates/denied_certificates.h"
#include "coordinator/cluster/removed_nodes.h"
#include "coordinator/fleet/node_sessions.h"
#include "coordinator/migration/migration_table.h"
#include "coordinator/output/output_copier.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class NodeRemovals : public ApiSection {
 public:
  struct Dependencies {
    RemovedNodes& removed;
    DeniedCertificates& denied;
    EventLog& events;
    NodeTable& nodes;
    NodeSessions& sessions;
    JobTable& jobs;
    JobRunner& job_runner;
    const MigrationTable& migrations;
    OutputCopier& output;
    std::string fence_command;  // empty: there is none
  };
  explicit NodeRemovals(Dependencies deps) : deps_(std::move(deps)) {}

  // The jobs that are lost with it.
  Result<std::vector<JobId>> remove(const std::string& node, bool force, bool fenced);
  // A removed node may connect again under its name. kNotFound for one that was not removed.
  Result<void> add(const std::string& node);

  // POST /v1/nodes/NODE/remove and /v1/nodes/NODE/add.
  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  Result<void> check(const std::string& node, bool force, bool fenced) const;
  [[nodiscard]] std::vector<JobId> jobs_on(const std::string& node) const;
  control::Task<Result<HttpResponse>> handle_removal(std::string node, std::string body);
  Result<void> allow_restores(const std::string& node);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
