// SPDX-License-Identifier: Apache-2.0
// `node rm`: removes nodes from the cluster permanently. An empty node is removed at once. A lost node needs
// `--force`, and its jobs are lost. Images of lost jobs may be restored once the operator confirms that
// nothing runs on the node any more (`--fenced`), or once `fence_command` has succeeded. A removed node that
// connects is refused (removed_nodes.h). The certificates of an empty node are denied at once. Those of a
// lost node are denied when its name joins again, because the node must still receive orders. Its other jobs
// continue unmanaged, until `node add` readmits the node.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kNotFound;
// kRefused with the obstacle.
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
    std::string fence_command;  // the path of the fence program; empty: none
  };
  explicit NodeRemovals(Dependencies deps) : deps_(std::move(deps)) {}

  // Removes the node. Returns the jobs that are lost with it.
  Result<std::vector<JobId>> remove(const std::string& node, bool force, bool fenced);
  // Completes removals that the coordinator's exit interrupted. Errors are logged. Call this once, after
  // everything has been loaded.
  void finish();
  // Allows a removed node to connect again under its name. Returns kNotFound for a node that was not removed.
  Result<void> add(const std::string& node);

  // These functions handle POST /v1/nodes/NODE/remove and /v1/nodes/NODE/add.
  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  Result<void> check(const std::string& node, bool force, bool fenced) const;
  [[nodiscard]] std::vector<JobId> jobs_on(const std::string& node) const;
  control::Task<Result<HttpResponse>> handle_removal(std::string node, std::string body);
  Result<void> allow_restores(const std::string& node);
  // Carries out a stored removal. The jobs on the node become lost. If `fenced`, their images may be
  // restored. Returns the lost jobs.
  Result<std::vector<JobId>> complete(const std::string& node, bool fenced);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
