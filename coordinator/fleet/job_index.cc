// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_index.h"

namespace ckpt::coordinator {

void JobIndex::put(Job& job) {
  const bool ended = is_ended(job.state);
  if (const wire::GangSpec& gang = job.spec.gang; gang.id != 0) {
    gangs_[gang.id].insert(job.id);
    gang_names_[gang.name].insert(gang.id);
  }
  if (job.unfenced_nodes.empty() && !job.unfenced)
    given_up_.erase(job.id);
  else
    given_up_.insert(job.id);
  if (ended && !job.operation)
    live_.erase(job.id);
  else
    live_[job.id] = &job;
  const auto name = live_names_.find(job.spec.name);
  if (!ended) {
    live_names_[job.spec.name] = job.id;
    ended_.erase(job.id);
    remove_ended_name(job);
  } else {
    if (name != live_names_.end() && name->second == job.id) live_names_.erase(name);
    ended_.insert(job.id);
    ended_names_[job.spec.name].insert(job.id);
  }
}

void JobIndex::remove(const Job& job) {
  if (const auto live = live_names_.find(job.spec.name); live != live_names_.end() && live->second == job.id)
    live_names_.erase(live);
  remove_ended_name(job);
  live_.erase(job.id);
  ended_.erase(job.id);
  given_up_.erase(job.id);
  remove_from_gang(job);
}

// Removes a rank from its gang. A gang exists for as long as one of its ranks.
void JobIndex::remove_from_gang(const Job& job) {
  const auto gang = gangs_.find(job.spec.gang.id);
  if (gang == gangs_.end()) return;
  gang->second.erase(job.id);
  if (!gang->second.empty()) return;
  gangs_.erase(gang);
  const auto name = gang_names_.find(job.spec.gang.name);
  if (name == gang_names_.end()) return;
  name->second.erase(job.spec.gang.id);
  if (name->second.empty()) gang_names_.erase(name);
}

void JobIndex::remove_ended_name(const Job& job) {
  const auto at = ended_names_.find(job.spec.name);
  if (at == ended_names_.end()) return;
  at->second.erase(job.id);
  if (at->second.empty()) ended_names_.erase(at);
}

std::optional<JobId> JobIndex::live_named(std::string_view name) const {
  const auto at = live_names_.find(name);
  return at == live_names_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<JobId> JobIndex::ended_named(std::string_view name) const {
  const auto at = ended_names_.find(name);
  return at == ended_names_.end() ? std::nullopt : std::optional(*at->second.rbegin());
}

const std::set<JobId>& JobIndex::ranks_of(JobId gang) const {
  static const std::set<JobId> kNone;
  const auto at = gangs_.find(gang);
  return at == gangs_.end() ? kNone : at->second;
}

std::optional<JobId> JobIndex::gang_named(std::string_view name) const {
  const auto at = gang_names_.find(name);
  return at == gang_names_.end() ? std::nullopt : std::optional(*at->second.rbegin());
}

}  // namespace ckpt::coordinator
