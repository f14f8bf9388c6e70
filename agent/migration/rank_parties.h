// SPDX-License-Identifier: Apache-2.0
// Reports how moves of ranks bind the jobs of this node. Each rank is a job (docs/adr/0039).
#pragma once

#include "agent/jobs/job.h"

namespace ckpt::agent {

class RankParties {
 public:
  virtual ~RankParties() = default;
  // Checks whether a paused rank may continue on its own.
  [[nodiscard]] virtual bool may_run_freely(const Job& job) const = 0;
  [[nodiscard]] virtual bool is_open(wire::JobId job) const = 0;
  // Checks whether the standby of that migration may be the rank's only instance.
  [[nodiscard]] virtual bool has_promised(wire::MigrationId migration) const = 0;
};

}  // namespace ckpt::agent
