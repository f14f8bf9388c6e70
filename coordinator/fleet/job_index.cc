// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_index.h"

namespace ckpt::coordinator {

void JobIndex::put(Job& job) {
  const bool ended = is_ended(job.state);
  wholes_[job.whole()].insert(job.id);
  whole_names_[job.whole_name()].insert(job.whole());
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
  remove_from_whole(job);
}

// Removes a rank from the index entry of its whole job. The entry is removed together with its last rank.
void JobIndex::remove_from_whole(const Job& job) {
  const auto whole = wholes_.find(job.whole());
  if (whole == wholes_.end()) return;
  whole->second.erase(job.id);
  if (!whole->second.empty()) return;
  wholes_.erase(whole);
  const auto name = whole_names_.find(job.whole_name());
  if (name == whole_names_.end()) return;
  name->second.erase(job.whole());
  if (name->second.empty()) whole_names_.erase(name);
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

const std::set<JobId>& JobIndex::ranks_of(JobId whole) const {
  static const std::set<JobId> kNone;
  const auto at = wholes_.find(whole);
  return at == wholes_.end() ? kNone : at->second;
}

const std::set<JobId>& JobIndex::wholes_named(std::string_view name) const {
  static const std::set<JobId> kNone;
  const auto at = whole_names_.find(name);
  return at == whole_names_.end() ? kNone : at->second;
}

}  // namespace ckpt::coordinator
