// SPDX-License-Identifier: Apache-2.0
// Ids of migrations by job, and of the open ones. So a query does not cost more the more migrations there
// once were.
// Threads: one. Errors: none.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class MigrationIndex {
 public:
  void add(const Migration& migration);
  // It is not open any more.
  void close(const Migration& migration);
  void remove(const Migration& migration);

  [[nodiscard]] const std::set<MigrationId>& open() const { return open_; }
  [[nodiscard]] std::optional<MigrationId> newest_open_of(JobId job) const;
  [[nodiscard]] std::optional<MigrationId> newest_of(JobId job) const;
  [[nodiscard]] std::set<MigrationId> of(JobId job) const;

 private:
  std::set<MigrationId> open_;
  std::map<JobId, MigrationId> open_of_job_;  // the newest of each job that has an open one
  std::map<JobId, std::set<MigrationId>> of_job_;
};

}  // namespace ckpt::coordinator
