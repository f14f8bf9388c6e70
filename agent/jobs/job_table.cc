// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/job_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "agent/jobs/gang_rendezvous.h"
#include "agent/jobs/log_times.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

namespace {

constexpr std::chrono::seconds kStartAwaited{8};  // time to wait for a start; the coordinator repeats its
                                                  // request after ten seconds

// Refuses another job's instance under the same id. A coordinator that lost its store may assign ids again.
Result<void> check_is_same(const Job& there, const wire::JobSpec& asked) {
  if (is_same_order(there.record().spec, asked)) return ok();
  return Error(ErrorCode::kRefused, "This node has an instance of another job, \"" +
                                        there.record().spec.name + "\", as " + wire::job_text(asked.job) +
                                        "." + std::to_string(asked.incarnation) +
                                        ": nothing was started for \"" + asked.name + "\"");
}

}  // namespace

JobTable::Key JobTable::key_of(const Job& job) {
  return {job.id(), job.started_as(), job.record().migration};
}

Task<Result<void>> JobTable::rediscover() {
  auto folders = list_instance_folders(environment_.config.jobs_folder());
  if (!folders) co_return std::move(folders).error();
  for (const std::string& folder : *folders) {
    auto job = co_await Job::rediscover(environment_, folder);
    if (!job) {
      spdlog::error("instance not recovered: folder {} reason {}", folder, job.error().to_string());
      continue;
    }
    const auto& found = *job;
    jobs_[key_of(*found)] = found;
    watch_log(found);
    spdlog::info("instance found: job {} started_as {} incarnation {} phase {}", wire::job_text(found->id()),
                 found->started_as(), found->incarnation(), local::to_string(found->phase()));
  }
  co_return ok();
}

Task<Result<std::shared_ptr<Job>>> JobTable::start(JobRecord record, std::optional<HostRestore> restore,
                                                   Prepare prepare) {
  const Key key(record.spec.job, record.spec.incarnation, record.migration);
  for (auto at = starting_.find(key); at != starting_.end(); at = starting_.find(key)) {
    const auto waiters = at->second;
    // The wait has no deadline, because each step of a start has a time limit of its own. A start notifies
    // all waiting requests when it is over.
    co_await waiters->wait(std::chrono::steady_clock::time_point::max());
  }
  if (auto it = jobs_.find(key); it != jobs_.end()) {
    CKPT_CO_TRYV(check_is_same(*it->second, record.spec));
    co_return it->second;
  }
  const auto waiters = std::make_shared<Waiters>(environment_.executor);
  starting_[key] = waiters;
  auto job = co_await start_reserved(std::move(record), std::move(restore), std::move(prepare));
  if (job) jobs_[key] = *job;
  if (job) watch_log(*job);
  starting_.erase(key);
  waiters->notify_all();
  co_return job;
}

Task<Result<std::shared_ptr<Job>>> JobTable::start_reserved(JobRecord record,
                                                            std::optional<HostRestore> restore,
                                                            Prepare prepare) {
  if (prepare) {
    CKPT_CO_TRYV(co_await prepare(record));
  }
  co_await wait_for_unknown(record.spec.job);
  CKPT_CO_TRYV(check_none_unknown(record.spec.job));
  co_return co_await Job::start(environment_, std::move(record), std::move(restore));
}

void JobTable::watch_log(const std::shared_ptr<Job>& job) {
  control::spawn(environment_.executor, "log times", record_log_times(environment_, job));
}

// Waits for unknown instances. An instance that leaves is unknown briefly, because its keeper closes its
// socket before the keeper has exited.
Task<> JobTable::wait_for_unknown(wire::JobId job) {
  const auto deadline = std::chrono::steady_clock::now() + environment_.config.keeper_timeout;
  for (const auto& instance : all()) {
    if (instance->id() == job && instance->unknown()) co_await instance->known(deadline);
  }
}

Result<void> JobTable::check_none_unknown(wire::JobId job) const {
  for (const auto& [key, instance] : jobs_) {
    if (instance->id() == job && instance->unknown())
      return Error(ErrorCode::kUnavailable,
                   "Job " + wire::job_text(job) + " may run on this node as incarnation " +
                       std::to_string(instance->incarnation()) + ": " + instance->instance().reason +
                       ". No other instance is started in its place; `stop` ends that instance");
  }
  return ok();
}

std::shared_ptr<Job> JobTable::running_as(wire::JobId job, wire::Incarnation incarnation) const {
  for (const auto& [key, instance] : jobs_) {
    if (instance->id() == job && instance->incarnation() == incarnation && !instance->ended())
      return instance;
  }
  return nullptr;
}

std::shared_ptr<Job> JobTable::started_as(wire::JobId job, wire::Incarnation incarnation) const {
  const auto after = jobs_.upper_bound(Key(job, incarnation, std::numeric_limits<wire::MigrationId>::max()));
  if (after == jobs_.begin()) return nullptr;
  const std::shared_ptr<Job>& last = std::prev(after)->second;
  return last->id() == job && last->started_as() == incarnation ? last : nullptr;
}

std::shared_ptr<Job> JobTable::started_by(wire::MigrationId migration, wire::JobId job,
                                          wire::Incarnation incarnation) const {
  const auto it = jobs_.find(Key(job, incarnation, migration));
  return it == jobs_.end() ? nullptr : it->second;
}

bool JobTable::superseded(const Job& job) const {
  const auto newest = started_as(job.id(), job.started_as());
  return newest && newest->record().migration > job.record().migration;
}

std::vector<std::shared_ptr<Job>> JobTable::all() const {
  std::vector<std::shared_ptr<Job>> list;
  list.reserve(jobs_.size());
  for (const auto& [key, instance] : jobs_) list.push_back(instance);
  return list;
}

Task<Result<void>> JobTable::wait_for_starts(wire::JobId job, wire::Incarnation incarnation) {
  const auto is_meant = [job, incarnation](const auto& entry) {
    return std::get<0>(entry.first) == job && std::get<1>(entry.first) <= incarnation;
  };
  const auto until = std::chrono::steady_clock::now() + kStartAwaited;
  while (true) {
    const auto at = std::find_if(starting_.begin(), starting_.end(), is_meant);
    if (at == starting_.end()) co_return ok();
    const auto waiters = at->second;
    if (co_await waiters->wait(until)) continue;
    co_return Error(
        ErrorCode::kUnavailable,
        "Job " + wire::job_text(job) + " is being started: the job will be stopped once it has started");
  }
}

Task<Result<void>> JobTable::stop(wire::JobId job, wire::Incarnation incarnation, Milliseconds grace) {
  bool found = false;
  std::optional<Error> failure;
  if (auto started = co_await wait_for_starts(job, incarnation); !started)
    failure = std::move(started).error();
  for (const auto& instance : all()) {
    if (instance->id() != job || instance->incarnation() > incarnation) continue;
    found = true;
    auto stopped = co_await instance->stop(grace);
    if (!stopped && !instance->ended() && !failure) failure = std::move(stopped).error();
  }
  if (failure) co_return *failure;
  if (!found)
    co_return Error(ErrorCode::kNotFound, "Job " + wire::job_text(job) + " has no instance on this node");
  co_return ok();
}

Task<> JobTable::remove(std::shared_ptr<Job> job) {
  const Key key = key_of(*job);
  co_await job->destroy();
  if (!job->ended()) co_return;  // the instance may still run
  // Another caller has removed the instance in the meantime, and the folder may already belong to a
  // successor.
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second != job) co_return;
  co_await job->remove_folder();
  const auto still = jobs_.find(key);
  if (still != jobs_.end() && still->second == job) jobs_.erase(still);
}

Task<> JobTable::forget(wire::JobId job) {
  for (const auto& instance : all()) {
    if (instance->id() == job && instance->ended()) co_await remove(instance);
  }
}

}  // namespace ckpt::agent
