// SPDX-License-Identifier: Apache-2.0
// The job machine's view of the coordinator's tables in their current state.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: none.
#pragma once

#include "coordinator/fleet/nodes.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/lifecycle/job_view.h"
#include "coordinator/migration/migration_table.h"
#include "coordinator/settings/config.h"

namespace ckpt::coordinator {

class LiveJobView : public lifecycle::JobView {
 public:
  LiveJobView(const Config& config, const NodeTable& nodes, const MigrationTable& migrations,
              const ImageCatalog& catalog)
      : config_(config), nodes_(nodes), migrations_(migrations), catalog_(catalog) {}

  [[nodiscard]] bool connected(const std::string& node) const override { return nodes_.connected(node); }
  [[nodiscard]] const wire::JobInstance* instance(const std::string& node, JobId job,
                                                  Incarnation incarnation) const override;
  [[nodiscard]] std::vector<lifecycle::SeenInstance> seen(JobId job) const override;
  [[nodiscard]] const Migration* open_migration(JobId job) const override { return migrations_.open_of(job); }
  [[nodiscard]] bool is_closing(JobId job) const override { return migrations_.is_closing(job); }
  [[nodiscard]] std::optional<Image> image(std::string_view name) const override;
  [[nodiscard]] std::int64_t image_timeout_ms() const override { return config_.image_timeout_ms; }

 private:
  const Config& config_;
  const NodeTable& nodes_;
  const MigrationTable& migrations_;
  const ImageCatalog& catalog_;
};

}  // namespace ckpt::coordinator
