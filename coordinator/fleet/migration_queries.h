// SPDX-License-Identifier: Apache-2.0
// The job table's queries about the migrations of its jobs. Threads: one io_context on one thread.
#pragma once

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class MigrationQueries {
 public:
  virtual ~MigrationQueries() = default;
  // Until it is decided. Asked for each instance that ended.
  [[nodiscard]] virtual bool has_open(JobId job) const = 0;
  // Its newest migration is decided, and not all reports have come. The source's report may have come before
  // the inventory that the target sent earlier. Asked for each instance that a node does not have.
  [[nodiscard]] virtual bool is_closing(JobId job) const = 0;
};

}  // namespace ckpt::coordinator
