// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/jobs.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace ckpt::coordinator {

Result<void> JobTable::load() {
  CKPT_TRY(jobs, store_.jobs());
  for (Job& job : jobs) {
    const JobId id = job.id;
    index(jobs_.emplace(id, std::move(job)).first->second);
  }
  CKPT_TRY(fences, store_.fences());
  for (const auto& [id, fenced] : fences) keep_fence(id, fenced);
  return ok();
}

Result<Job*> JobTable::add(Job job) {
  CKPT_TRYV(store_.put(job));
  const JobId id = job.id;
  Job& added = jobs_.emplace(id, std::move(job)).first->second;
  index(added);
  return &added;
}

Result<std::vector<Job*>> JobTable::add_all(std::vector<Job> jobs) {
  std::vector<const Job*> stored;
  for (const Job& job : jobs) stored.push_back(&job);
  CKPT_TRYV(store_.put_jobs(stored));
  std::vector<Job*> added;
  for (Job& job : jobs) {
    const JobId id = job.id;
    added.push_back(&jobs_.emplace(id, std::move(job)).first->second);
    index(*added.back());
  }
  return added;
}

Result<void> JobTable::replace(Job changed) {
  CKPT_TRYV(store_.put(changed));
  put_in_place(std::move(changed));
  changed_.notify();
  return ok();
}

Result<void> JobTable::replace_all(std::vector<Job> changed) {
  std::vector<const Job*> stored;
  for (const Job& job : changed) stored.push_back(&job);
  CKPT_TRYV(store_.put_jobs(stored));
  for (Job& job : changed) put_in_place(std::move(job));
  changed_.notify();
  return ok();
}

void JobTable::accept(std::vector<Job> changed, const Error& refusal) {
  for (Job& job : changed) {
    const JobId id = job.id;
    spdlog::error("job {} is not stored yet: {}", label(job), refusal.to_string());
    put_in_place(std::move(job));
    refused_.insert(id);
  }
  changed_.notify();
}

void JobTable::save(Job& job) {
  index(job);
  if (auto stored = store_.put(job); !stored) {
    spdlog::error("job {} is not stored yet: {}", label(job), stored.error().to_string());
    refused_.insert(job.id);
  } else {
    stored_now(job.id);
  }
  changed_.notify();
}

// Replaces the job's row in the table. If the name changes, the job is first removed from the index, which
// still has the former name.
void JobTable::put_in_place(Job changed) {
  const JobId id = changed.id;
  Job& job = jobs_.at(id);
  if (job.spec.name != changed.spec.name) index_.remove(job);
  job = std::move(changed);
  stored_now(id);
  index(job);
}

void JobTable::stored_now(JobId id) {
  unsaved_.erase(id);
  refused_.erase(id);
}

Result<void> JobTable::remove(const std::vector<JobId>& ids) {
  CKPT_TRYV(store_.remove_jobs(ids, fences_of(ids)));
  for (const JobId id : ids) erase(id);
  changed_.notify();
  return ok();
}

void JobTable::drop(JobId id) {
  if (auto removed = store_.remove_job(id); !removed)
    spdlog::error("job {} was not removed: {}", job_text(id), removed.error().to_string());
  erase(id);
  changed_.notify();
}

Result<void> JobTable::store_unsaved() {
  unsaved_.insert(refused_.begin(), refused_.end());
  if (unsaved_.empty()) return ok();
  std::vector<const Job*> learnt;
  for (const JobId id : unsaved_) learnt.push_back(&jobs_.at(id));
  CKPT_TRYV(store_.put_jobs(learnt));
  unsaved_.clear();
  refused_.clear();
  return ok();
}

std::vector<JobId> JobTable::remove_old(const Retention& retention,
                                        const std::function<bool(const Job&)>& may_leave) {
  std::vector<JobId> over;
  std::size_t surplus = ended_count() - std::min(ended_count(), retention.count);
  for (const JobId id : index_.ended()) {
    if (over.size() >= Retention::kBatch) break;
    const Job& job = jobs_.at(id);
    if (surplus == 0 && job.ended_ms >= retention.since_ms) break;
    if (surplus > 0) --surplus;
    if (may_leave(job)) over.push_back(id);
  }
  if (over.empty()) return over;
  if (auto removed = store_.remove_jobs(over, fences_of(over)); !removed) {
    spdlog::error("{} ended jobs were not removed: {}", over.size(), removed.error().to_string());
    return {};
  }
  for (const JobId id : over) erase(id);
  return over;
}

Job* JobTable::find(JobId id) {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : &at->second;
}

Job* JobTable::find(std::string_view id_or_name) {
  if (const auto id = parse_job_id(id_or_name)) {
    if (const auto at = wire::find_meant(jobs_, *id); at != jobs_.end()) return &at->second;
  }
  if (const auto live = index_.live_named(id_or_name)) return find(*live);
  const auto ended = index_.ended_named(id_or_name);
  return ended ? find(*ended) : nullptr;
}

std::vector<Job*> JobTable::ranks_of(JobId whole) {
  std::vector<Job*> found;
  for (const JobId id : index_.ranks_of(whole)) found.push_back(&jobs_.at(id));
  std::sort(found.begin(), found.end(),
            [](const Job* a, const Job* b) { return a->rank_number() < b->rank_number(); });
  return found;
}

std::optional<JobId> JobTable::find_whole(std::string_view id_or_name) const {
  if (const auto id = parse_job_id(id_or_name)) {
    const auto& wholes = index_.wholes();
    if (const auto at = wire::find_meant(wholes, *id); at != wholes.end()) return at->first;
  }
  const std::set<JobId>& named = index_.wholes_named(id_or_name);
  if (named.empty()) return std::nullopt;
  const auto live = std::ranges::find_if(named, [this](JobId whole) { return has_live_rank(whole); });
  return live == named.end() ? *named.rbegin() : *live;
}

bool JobTable::has_live_rank(JobId whole) const {
  return std::ranges::any_of(index_.ranks_of(whole),
                             [this](JobId id) { return !is_ended(jobs_.at(id).state); });
}

Error JobTable::not_found(std::string_view id_or_name) const {
  std::string same;
  const JobId given = parse_job_id(id_or_name).value_or(0);
  for (const auto& [id, job] : jobs_) {
    if (given != 0 && wire::may_mean(given, id)) same += (same.empty() ? "" : ", ") + job_text(id);
  }
  if (same.empty()) return {ErrorCode::kNotFound, fmt::format("There is no job \"{}\"", id_or_name)};
  return {ErrorCode::kNotFound, fmt::format("Several jobs have the id {}: use one of {}", id_or_name, same)};
}

bool JobTable::is_name_taken(const std::string& name, JobId except) const {
  const auto live = index_.live_named(name);
  if (live && *live != except) return true;
  return std::ranges::any_of(index_.wholes_named(name), [this, except](JobId whole) {
    return !index_.ranks_of(whole).contains(except) && has_live_rank(whole);
  });
}

std::vector<std::reference_wrapper<Job>> JobTable::live() const {
  std::vector<std::reference_wrapper<Job>> found;
  found.reserve(index_.live().size());
  for (const auto& [id, job] : index_.live()) found.emplace_back(*job);
  visited_ += found.size();
  return found;
}

std::vector<JobId> JobTable::to_be_stopped() const {
  std::set<JobId> found = index_.given_up();
  for (const auto& [id, job] : index_.live()) {
    if (job->stop_requested) found.insert(id);
  }
  visited_ += index_.live().size() + index_.given_up().size();
  return {found.begin(), found.end()};
}

unsigned JobTable::live_on(const std::string& node) const {
  const auto& live = index_.live();
  return static_cast<unsigned>(std::count_if(live.begin(), live.end(), [&](const auto& entry) {
    return holds_gpu(entry.second->state) && entry.second->node() == node;
  }));
}

unsigned JobTable::live_on(const Place& place) const {
  const auto& live = index_.live();
  return static_cast<unsigned>(std::count_if(live.begin(), live.end(), [&](const auto& entry) {
    const Job& job = *entry.second;
    return holds_gpu(job.state) && std::any_of(job.ranks.begin(), job.ranks.end(),
                                               [&](const JobRank& rank) { return rank.place == place; });
  }));
}

void JobTable::index(Job& job) {
  index_.put(job);
  newest_end_ms_ = std::max(newest_end_ms_, job.ended_ms);
}

void JobTable::erase(JobId id) {
  const auto at = jobs_.find(id);
  if (at == jobs_.end()) return;
  index_.remove(at->second);
  stored_now(id);
  if (at->second.fenced != 0) keep_fence(id, at->second.fenced);
  jobs_.erase(at);
}

void JobTable::keep_fence(JobId id, Incarnation fenced) {
  if (fences_.contains(id))
    std::erase(removal_order_, id);  // the job already has a fence if it was removed before
                                     // and a node's report has added it again
  fences_[id] = fenced;
  removal_order_.push_back(id);
  if (removal_order_.size() <= Store::kMaxFences) return;
  fences_.erase(removal_order_.front());
  removal_order_.pop_front();
}

Store::Fences JobTable::fences_of(const std::vector<JobId>& ids) const {
  Store::Fences fences;
  for (const JobId id : ids)
    if (const Incarnation fenced = jobs_.at(id).fenced; fenced != 0) fences.emplace_back(id, fenced);
  return fences;
}

Incarnation JobTable::fenced_of_removed(JobId id) const {
  const auto at = fences_.find(id);
  return at == fences_.end() || jobs_.contains(id) ? 0 : at->second;
}

}  // namespace ckpt::coordinator
