// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/jobs.h"
#include "coordinator/state/usual_pause.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr int kExitOfFailed = 125;
constexpr int kExitOfStopped = 143;

// What the instance holds goes into the job's history; true if that is worth storing.
bool take_memory(Job& job, const wire::JobInstance& instance) {
  std::uint64_t bytes = 0;
  for (const wire::RankState& rank : instance.ranks) bytes += std::max(rank.state_bytes, rank.device_bytes);
  const bool gone = is_over(instance.phase);
  return bytes != 0 && !gone && job.memory.add(wall_clock_ms(), bytes);
}

// Checked when the job begins, since every later message about it carries the same.
Result<void> check_spec_size(const wire::JobSpec& spec) {
  const std::size_t bytes = wire::encode(spec).size();
  if (bytes <= wire::kMaxJobSpecBytes) return ok();
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("The job's command and environment have {} bytes, at most {} are possible: put "
                           "what it needs into a file",
                           bytes, wire::kMaxJobSpecBytes));
}

// With the whole id where another job has the short name.
std::string made_up_name(const wire::JobSpec& spec, JobId id,
                         const std::function<bool(const std::string&)>& taken) {
  const std::string number = std::to_string(wire::id_number(id));
  std::string stem = spec.argv.front().substr(spec.argv.front().rfind('/') + 1);
  constexpr std::size_t kLongestStem = 40;
  stem = stem.substr(0, kLongestStem);
  if (!valid_job_name(stem + "-" + number)) stem = "job";
  const std::string name = stem + "-" + number;
  return taken(name) ? name + job_text(id).substr(1 + number.size()) : name;
}

}  // namespace

Result<void> JobTable::load() {
  CKPT_TRY(jobs, store_.jobs());
  for (Job& job : jobs) {
    const JobId id = job.id;
    index(jobs_.emplace(id, std::move(job)).first->second);
  }
  return ok();
}

Result<Job*> JobTable::create(wire::JobSpec spec, const Place& place, std::string placed) {
  CKPT_TRYV(check_spec_size(spec));
  if (const Job* same = spec.name.empty() ? nullptr : find(spec.name);
      same != nullptr && !is_ended(same->state))
    return Error(ErrorCode::kRefused,
                 "A live job is called \"" + spec.name + "\" already (" + job_text(same->id) + ")");
  Job job;
  CKPT_TRY(id, store_.next_job_id());
  job.id = id;
  if (spec.name.empty())
    spec.name = made_up_name(spec, id, [this](const std::string& name) {
      const Job* same = find(name);
      return same != nullptr && !is_ended(same->state);
    });
  spec.job = id;
  spec.incarnation = job.incarnation;
  job.spec = std::move(spec);
  job.segments.emplace_back(place.node, job.incarnation);
  for (const wire::RankSpec& rank_spec : job.spec.ranks) {
    JobRank& rank = job.ranks.emplace_back();
    rank.rank = rank_spec.rank;
    rank.place = Place(place.node, rank_spec.gpu_index);
  }
  job.placed = std::move(placed);
  job.started_ms = wall_clock_ms();
  CKPT_TRYV(store_.put(job));
  Job& kept = jobs_.emplace(id, std::move(job)).first->second;
  index(kept);
  changed_.notify();
  return &kept;
}

Result<Job*> JobTable::revive(wire::JobSpec spec, const Place& place, const std::string& image,
                              std::int64_t as_of_ms) {
  CKPT_TRY(job, create(std::move(spec), place, "from " + image));
  Job changed = *job;
  changed.state = JobState::kParked;
  changed.phase = wire::JobPhase::kExited;
  changed.incarnation = 0;
  changed.spec.incarnation = 0;
  changed.segments.front().incarnation = 0;
  changed.parked_ms = changed.ended_ms = as_of_ms;
  const JobId id = changed.id;
  if (auto stored = replace(std::move(changed)); !stored) {
    drop(id);
    return std::move(stored).assume_error();
  }
  return find(id);
}

namespace {

// Of ranks as an instance says that they are; 0 of what it does not say.
std::vector<JobRank> ranks_of(const wire::JobSpec& spec, const Node& node,
                              const wire::JobInstance& instance) {
  std::vector<JobRank> ranks;
  for (const wire::RankSpec& rank_spec : spec.ranks) {
    JobRank& rank = ranks.emplace_back();
    rank.rank = rank_spec.rank;
    rank.place = Place(node.row.name, rank_spec.gpu_index);
    for (const wire::RankState& state : instance.ranks) {
      if (state.rank == rank.rank) rank.place.gpu = state.gpu_index;
    }
  }
  return ranks;
}

Incarnation right_of(const wire::JobInstance& instance) {
  return std::max(instance.runs_as, instance.incarnation);
}

}  // namespace

void JobTable::make_name_free(wire::JobSpec& spec, JobId id) const {
  const auto taken = [&](const std::string& name) {
    const auto live = live_names_.find(name);
    return live != live_names_.end() && live->second != id;
  };
  if (!valid_job_name(spec.name)) spec.name.clear();
  if (!spec.name.empty() && !taken(spec.name)) return;
  const std::string longer = spec.name + "-" + job_text(id);
  spec.name = valid_job_name(longer) && !taken(longer) ? longer : made_up_name(spec, id, taken);
}

Result<Job*> JobTable::take_in(wire::JobSpec spec, const Node& node, const wire::JobInstance& instance) {
  CKPT_TRYV(check_spec_size(spec));
  if (instance.job == 0 || jobs_.contains(instance.job) || spec.argv.empty() || spec.ranks.size() != 1)
    return Error(ErrorCode::kInvalidArgument, "Node " + node.row.name + " does not say how job " +
                                                  job_text(instance.job) + " was started");
  make_name_free(spec, instance.job);
  Job job;
  job.id = instance.job;
  job.incarnation = right_of(instance);
  spec.job = job.id;
  spec.incarnation = job.incarnation;
  job.ranks = ranks_of(spec, node, instance);
  job.spec = std::move(spec);
  job.segments.emplace_back(node.row.name, instance.incarnation);
  job.placed = "found running on " + node.row.name + " by a coordinator whose store did not know it";
  job.state = instance.phase == wire::JobPhase::kStarting ? JobState::kStarting : JobState::kRunning;
  job.started_ms = instance.started_unix_ms;
  CKPT_TRYV(store_.put(job));
  Job& kept = jobs_.emplace(job.id, std::move(job)).first->second;
  index(kept);
  events_.add("job-taken-in",
              fmt::format("job {} was found on {}: this coordinator's store did not know it", label(kept),
                          to_text(kept.ranks.front().place)),
              node.row.name, kept.id);
  judge(kept, instance);
  return &kept;
}

void JobTable::go_on_at(JobId id, const Node& node, const wire::JobInstance& instance) {
  Job* job = find(id);
  if (job == nullptr) return;
  events_.add(
      "job-taken-in",
      fmt::format("job {} was found on {} as incarnation {}: this coordinator's store knew it {} on {} as {}",
                  label(*job), node.row.name, right_of(instance), to_string(job->state), job->node(),
                  job->incarnation),
      node.row.name, id);
  forget_ended_name(*job);
  make_name_free(job->spec, id);
  job->state = JobState::kRunning;
  job->exit_code = -1;
  job->ended_ms = job->parked_ms = 0;
  job->resumes_itself = job->unfenced = false;
  job->reason.clear();
  save(*job);
  runs_at(id, right_of(instance), Segment(node.row.name, instance.incarnation),
          ranks_of(job->spec, node, instance), &node);
  reconsider(id, &node);
}

void JobTable::runs_unmanaged(JobId id, const std::string& node, Incarnation incarnation) {
  Job* job = find(id);
  if (job == nullptr || job->state != JobState::kLost || job->segments.back() != Segment(node, incarnation))
    return;
  const std::string reason = fmt::format(
      "runs on {} unmanaged: that node was removed; `gpumigrate node add {}` takes it back", node, node);
  if (job->reason == reason) return;
  job->reason = reason;
  save(*job);
}

void JobTable::lose_left(JobId id) {
  Job* job = find(id);
  if (job == nullptr || !holds_gpu(job->state) || judged_elsewhere(*job)) return;
  end(*job, JobState::kLost, kExitOfFailed,
      "node " + job->node() + " says that it went on elsewhere, and no node has it: look at its images");
}

void JobTable::drop(JobId id) {
  if (auto removed = store_.remove_job(id); !removed)
    spdlog::error("job {} was not removed: {}", job_text(id), removed.assume_error().to_string());
  erase(id);
  changed_.notify();
}

void JobTable::forget_ended_name(const Job& job) {
  const auto at = ended_names_.find(job.spec.name);
  if (at == ended_names_.end()) return;
  at->second.erase(job.id);
  if (at->second.empty()) ended_names_.erase(at);
}

void JobTable::index(Job& job) {
  const bool ended = is_ended(job.state);
  if (job.stop_owed)
    owed_stops_.insert(job.id);
  else
    owed_stops_.erase(job.id);
  if (ended && !job.operation)
    live_.erase(job.id);
  else
    live_[job.id] = &job;
  const auto name = live_names_.find(job.spec.name);
  if (!ended) {
    live_names_[job.spec.name] = job.id;
    ended_.erase(job.id);
    forget_ended_name(job);
  } else {
    if (name != live_names_.end() && name->second == job.id) live_names_.erase(name);
    ended_.insert(job.id);
    ended_names_[job.spec.name].insert(job.id);
  }
  newest_end_ms_ = std::max(newest_end_ms_, job.ended_ms);
}

std::vector<JobId> JobTable::to_be_stopped() const {
  std::set<JobId> found = owed_stops_;
  for (const auto& [id, job] : live_) {
    if (job->stop_requested) found.insert(id);
  }
  visited_ += live_.size() + owed_stops_.size();
  return {found.begin(), found.end()};
}

void JobTable::erase(JobId id) {
  const auto at = jobs_.find(id);
  if (at == jobs_.end()) return;
  const std::string& name = at->second.spec.name;
  if (const auto live = live_names_.find(name); live != live_names_.end() && live->second == id)
    live_names_.erase(live);
  if (const auto ended = ended_names_.find(name); ended != ended_names_.end()) {
    ended->second.erase(id);
    if (ended->second.empty()) ended_names_.erase(ended);
  }
  live_.erase(id);
  ended_.erase(id);
  owed_stops_.erase(id);
  unsaved_memory_.erase(id);
  jobs_.erase(at);
}

std::vector<std::reference_wrapper<Job>> JobTable::live() const {
  std::vector<std::reference_wrapper<Job>> found;
  found.reserve(live_.size());
  for (const auto& [id, job] : live_) found.emplace_back(*job);
  visited_ += found.size();
  return found;
}

void JobTable::started(Job& job) {
  if (job.state != JobState::kStarting) return;
  job.state = JobState::kRunning;
  save(job);
  events_.add("job-started", "job " + label(job) + " started on " + to_text(job.ranks.front().place),
              job.node(), job.id);
}

void JobTable::failed_to_start(Job& job, const Error& reason) {
  if (job.state != JobState::kStarting) return;
  end(job, JobState::kFailed, kExitOfFailed, reason.to_string());
}

Result<void> JobTable::stop_requested(Job& job, std::int64_t grace_ms) {
  Job changed = job;
  changed.stop_requested = true;
  changed.stop_grace_ms = grace_ms;
  return replace(std::move(changed));
}

void JobTable::stop_away(Job& job) {
  job.stop_owed = true;
  end(job, JobState::kExited, kExitOfStopped,
      "stopped while node " + job.node() + " was away: what runs of it there ends when the node comes back");
}

void JobTable::lose(JobId id, bool unfenced) {
  Job* job = find(id);
  if (job == nullptr || is_ended(job->state)) return;
  job->unfenced = unfenced;
  end(*job, JobState::kLost, kExitOfFailed, "node " + job->node() + " was removed");
}

void JobTable::not_parked(JobId id, const Node* node, bool stopped) {
  Job* job = find(id);
  if (job == nullptr || node == nullptr || !holds_gpu(job->state)) return;
  const Segment& current = job->segments.back();
  const wire::JobInstance* instance = node->find(id, current.incarnation);
  if (current.node != node->row.name || instance == nullptr || instance->phase != wire::JobPhase::kMoved)
    return;
  if (stopped) return end(*job, JobState::kExited, kExitOfStopped, "stopped while it was being suspended");
  end(*job, JobState::kLost, kExitOfFailed, "it left for an image that is not there");
}

void JobTable::settle_stop(JobId id, const Node* node) {
  Job* job = find(id);
  if (job == nullptr || !job->stop_owed || node == nullptr || !node->connected()) return;
  const bool lives = std::any_of(node->instances.begin(), node->instances.end(), [&](const auto& instance) {
    return instance.job == id && !is_over(instance.phase);
  });
  if (lives) return;
  job->stop_owed = false;
  save(*job);
}

Job* JobTable::find(JobId id) {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : &at->second;
}

Job* JobTable::find(std::string_view id_or_name) {
  if (const auto id = parse_job_id(id_or_name)) {
    if (const auto at = wire::find_meant(jobs_, *id); at != jobs_.end()) return &at->second;
  }
  if (const auto live = live_names_.find(id_or_name); live != live_names_.end()) return find(live->second);
  const auto ended = ended_names_.find(id_or_name);
  if (ended == ended_names_.end()) return nullptr;
  return find(*ended->second.rbegin());
}

Error JobTable::not_found(std::string_view id_or_name) const {
  std::string same;
  const JobId said = parse_job_id(id_or_name).value_or(0);
  for (const auto& [id, job] : jobs_) {
    if (said != 0 && wire::may_mean(said, id)) same += (same.empty() ? "" : ", ") + job_text(id);
  }
  if (same.empty()) return {ErrorCode::kNotFound, fmt::format("There is no job \"{}\"", id_or_name)};
  return {ErrorCode::kNotFound, fmt::format("Several jobs are called {}: say which of {}", id_or_name, same)};
}

unsigned JobTable::live_on(const std::string& node) const {
  return static_cast<unsigned>(std::count_if(live_.begin(), live_.end(), [&](const auto& entry) {
    return holds_gpu(entry.second->state) && entry.second->node() == node;
  }));
}

unsigned JobTable::live_on(const Place& place) const {
  return static_cast<unsigned>(std::count_if(live_.begin(), live_.end(), [&](const auto& entry) {
    const Job& job = *entry.second;
    return holds_gpu(job.state) && std::any_of(job.ranks.begin(), job.ranks.end(),
                                               [&](const JobRank& rank) { return rank.place == place; });
  }));
}

std::vector<JobId> JobTable::take_inventory(const Node& node) {
  std::vector<JobId> missing_starts;
  for (const wire::JobInstance& instance : node.instances) take_instance(node, instance);
  for (Job& job : live()) {
    const Segment& current = job.segments.back();
    if (!holds_gpu(job.state) || current.node != node.row.name ||
        node.find(job.id, current.incarnation) != nullptr)
      continue;
    if (job.state == JobState::kStarting && job.stop_requested)
      end(job, JobState::kExited, kExitOfStopped, "stopped before it had started");
    else if (job.state == JobState::kStarting)
      missing_starts.push_back(job.id);
    else if (!judged_elsewhere(job) && !migrations_.is_closing(job.id))
      end(job, JobState::kLost, kExitOfFailed, "node " + node.row.name + " does not have it any more");
  }
  changed_.notify();  // also the free memory is news
  return missing_starts;
}

void JobTable::take_instance(const Node& node, const wire::JobInstance& instance) {
  Job* job = find(instance.job);
  if (job == nullptr) {
    return;  // forgotten, or recovery.h takes it in
  }
  const Segment& current = job->segments.back();
  if (!holds_gpu(job->state) || current.node != node.row.name || current.incarnation != instance.incarnation)
    return;
  judge(*job, instance);
}

void JobTable::judge(Job& job, const wire::JobInstance& instance) {
  const bool open = judged_elsewhere(job);
  const auto phase_before = job.phase;
  if (take_memory(job, instance)) unsaved_memory_.insert(job.id);
  job.phase = instance.phase;
  // An instance that has not been described yet says nothing: what is known of the job still holds.
  if (instance.movable || !instance.reason.empty()) job.movable = instance.movable;
  if (!is_ended(job.state)) job.reason = instance.reason;
  for (const wire::RankState& state : instance.ranks) {
    const auto rank = std::find_if(job.ranks.begin(), job.ranks.end(),
                                   [&](const JobRank& known) { return known.rank == state.rank; });
    if (rank == job.ranks.end()) continue;
    rank->pid = state.pid;
    rank->place.gpu = state.gpu_index;
    if (state.state_bytes != 0) rank->state_bytes = state.state_bytes;
  }
  if (job.state == JobState::kStarting && instance.phase != wire::JobPhase::kExited) started(job);
  if (instance.phase == wire::JobPhase::kExited && !open) {
    end(job, JobState::kExited, instance.exit_code, instance.exit_code < 0 ? instance.reason : "");
  } else if (phase_before != job.phase) {
    save(job);
  } else {
    changed_.notify();
  }
}

void JobTable::runs_at(JobId id, Incarnation k, const Segment& segment, const std::vector<JobRank>& ranks,
                       const Node* node) {
  Job* job = find(id);
  if (job == nullptr || (job->incarnation == k && job->segments.back() == segment)) return;
  job->incarnation = k;
  const auto known = std::find(job->segments.begin(), job->segments.end(), segment);
  if (known != job->segments.end())
    job->segments.erase(known + 1, job->segments.end());  // it goes on where it was: the log does, too
  else
    job->segments.push_back(segment);
  const std::vector<JobRank> before = std::exchange(job->ranks, ranks);
  for (std::size_t i = 0; i < std::min(before.size(), ranks.size()); ++i)
    job->ranks[i].state_bytes = before[i].state_bytes;
  job->phase = wire::JobPhase::kRunning;
  save(*job);
  reconsider(id, node);
}

void JobTable::reconsider(JobId id, const Node* node) {
  Job* job = find(id);
  if (job == nullptr || node == nullptr || !holds_gpu(job->state)) return;
  const Segment& current = job->segments.back();
  if (current.node != node->row.name) return;
  if (const wire::JobInstance* instance = node->find(id, current.incarnation)) judge(*job, *instance);
}

void JobTable::set_downtime(JobId id, double downtime_ms, std::optional<wire::PauseFacts> pause) {
  Job* job = find(id);
  if (job == nullptr) return;
  job->last_downtime_ms = downtime_ms;
  if (pause) add_pause(job->pauses, *pause);
  save(*job);
}

Result<void> JobTable::replace(Job changed) {
  CKPT_TRYV(store_.put(changed));
  const JobId id = changed.id;
  Job& job = jobs_.at(id);
  job = std::move(changed);
  unsaved_memory_.erase(id);
  index(job);
  changed_.notify();
  return ok();
}

void JobTable::stop_parked(Job& job) {
  if (job.state != JobState::kParked || job.operation) return;
  end(job, JobState::kExited, kExitOfStopped, "stopped while it was parked");
}

void JobTable::end(Job& job, JobState state, int exit_code, std::string reason) {
  job.state = state;
  job.exit_code = exit_code;
  job.reason = std::move(reason);
  job.ended_ms = wall_clock_ms();
  save(job);
  if (state == JobState::kExited)
    events_.add("job-ended",
                exit_code < 0 ? fmt::format("job {} ended: {}", label(job), job.reason)
                              : fmt::format("job {} ended with exit code {}", label(job), exit_code),
                job.node(), job.id);
  else
    events_.add(state == JobState::kFailed ? "job-failed" : "job-lost",
                fmt::format("job {} {}: {}", label(job), to_string(state), job.reason), job.node(), job.id);
}

std::vector<JobId> JobTable::forget_old(const Retention& keep) {
  std::vector<JobId> over;
  std::size_t surplus = ended_.size() - std::min(ended_.size(), keep.count);
  for (const JobId id : ended_) {
    if (over.size() >= Retention::kBatch) break;
    const Job& job = jobs_.at(id);
    if (surplus == 0 && job.ended_ms >= keep.since_ms) break;
    if (surplus > 0) --surplus;
    if (!judged_elsewhere(job) && !job.stop_owed) over.push_back(id);
  }
  if (over.empty()) return over;
  if (auto removed = store_.remove_jobs(over); !removed) {
    spdlog::error("{} ended jobs were not removed: {}", over.size(), removed.assume_error().to_string());
    return {};
  }
  for (const JobId id : over) erase(id);
  return over;
}

Result<void> JobTable::store_memory() {
  if (unsaved_memory_.empty()) return ok();
  std::vector<const Job*> learnt;
  for (const JobId id : unsaved_memory_) learnt.push_back(&jobs_.at(id));
  CKPT_TRYV(store_.put_jobs(learnt));
  unsaved_memory_.clear();
  return ok();
}

void JobTable::save(Job& job) {
  index(job);
  if (auto stored = store_.put(job); !stored)
    spdlog::error("job {} was not stored: {}", label(job), stored.assume_error().to_string());
  else
    unsaved_memory_.erase(job.id);
  changed_.notify();
}

}  // namespace ckpt::coordinator
