// SPDX-License-Identifier: Apache-2.0
// An index of migrations by job, and of the open migrations. It keeps the time of a query independent of the
// number of past migrations.
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
  // Records that the migration is not open any more.
  void close(const Migration& migration);
  void remove(const Migration& migration);

  [[nodiscard]] const std::set<MigrationId>& open() const { return open_; }
  [[nodiscard]] std::optional<MigrationId> newest_open_of(JobId job) const;
  [[nodiscard]] std::optional<MigrationId> newest_of(JobId job) const;
  [[nodiscard]] std::set<MigrationId> of(JobId job) const;

 private:
  std::set<MigrationId> open_;
  std::map<JobId, MigrationId> open_of_job_;  // the newest open migration of each job
  std::map<JobId, std::set<MigrationId>> of_job_;
};

}  // namespace ckpt::coordinator
