// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/migration_index.h"

#include <algorithm>

namespace ckpt::coordinator {

void MigrationIndex::add(const Migration& m) {
  of_job_[m.job].insert(m.id);
  if (!m.open()) return;
  open_.insert(m.id);
  MigrationId& newest = open_of_job_[m.job];
  newest = std::max(newest, m.id);
}

void MigrationIndex::close(const Migration& m) {
  open_.erase(m.id);
  if (const auto of = open_of_job_.find(m.job); of != open_of_job_.end() && of->second == m.id)
    open_of_job_.erase(of);
}

void MigrationIndex::remove(const Migration& m) {
  const auto of = of_job_.find(m.job);
  if (of == of_job_.end()) return;
  of->second.erase(m.id);
  if (of->second.empty()) of_job_.erase(of);
}

std::optional<MigrationId> MigrationIndex::newest_open_of(JobId job) const {
  const auto open = open_of_job_.find(job);
  return open == open_of_job_.end() ? std::nullopt : std::optional(open->second);
}

std::optional<MigrationId> MigrationIndex::newest_of(JobId job) const {
  const auto of = of_job_.find(job);
  return of == of_job_.end() ? std::nullopt : std::optional(*of->second.rbegin());
}

std::set<MigrationId> MigrationIndex::of(JobId job) const {
  const auto found = of_job_.find(job);
  return found == of_job_.end() ? std::set<MigrationId>() : found->second;
}

}  // namespace ckpt::coordinator
