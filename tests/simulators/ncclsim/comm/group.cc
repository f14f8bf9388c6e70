// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/comm/group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/simulators/ncclsim/comm/launch.h"

namespace ncclsim {
namespace {

void discard(Communicator* communicator) {
  strike(communicator);
  communicator->take_down();
  delete communicator;
}

// Ends a job, and gives the result to the program. A failed communicator is destroyed, except in two cases:
// it reports its own error, or an abort is in progress and frees it. `last`: this is the owner's last job;
// the owner may no longer exist afterwards.
void hand_over(const Job& job, ncclResult_t result, bool last) {
  const std::shared_ptr<JobState> state = job.owner->job;
  const bool blocking = job.owner->config.blocking;
  const bool shows_itself = job.made == job.owner;
  if (result == ncclSuccess && job.made != nullptr && !shows_itself) *job.out = enlist(job.made);
  const bool gone = result != ncclSuccess && job.made != nullptr &&
                    (!shows_itself || (blocking && !job.owner->aborted.is_set()));
  if (gone) {
    *job.out = nullptr;
    discard(job.made);
  }
  if (last) state->end(!shows_itself && blocking ? ncclSuccess : result);
}

// Runs the jobs of one communicator one after the other; the first error ends them.
ncclResult_t run_in_order(const std::vector<Job>& jobs) {
  ncclResult_t result = ncclSuccess;
  for (const Job& job : jobs) {
    if (result == ncclSuccess) result = job.work();
    // Waiters of the communicator wait until its last job has ended.
    hand_over(job, result, &job == &jobs.back());
  }
  return result;
}

}  // namespace

Group& Group::current() {
  static thread_local Group group;
  return group;
}

ncclResult_t Group::note(ncclResult_t result) {
  if (error_ == ncclSuccess && result != ncclSuccess && result != ncclInProgress) error_ = result;
  return result;
}

ncclResult_t Group::end(bool simulate) {
  NCCLSIM_CHECK(depth_ > 0, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--depth_ > 0) return ncclSuccess;
  const std::vector<Job> jobs = std::exchange(jobs_, {});
  const ncclResult_t error = std::exchange(error_, ncclSuccess);
  if (error != ncclSuccess || simulate) {
    for (const Job& job : jobs) {
      if (job.made != job.owner) {
        if (job.made != nullptr) discard(job.made);
        continue;
      }
      // The result is the same as after a failed creation.
      hand_over(job, error != ncclSuccess ? error : ncclInvalidUsage, true);
    }
    tasks_.clear();
    return error;
  }
  const ncclResult_t done = run_jobs(jobs);
  if (done != ncclSuccess && done != ncclInProgress) {
    tasks_.clear();
    return done;
  }
  NCCLSIM_TRY(launch_tasks());
  return done;
}

ncclResult_t Group::run_jobs(const std::vector<Job>& jobs) {
  std::vector<std::vector<Job>> by_owner;
  for (const Job& job : jobs) {
    const auto same = std::find_if(by_owner.begin(), by_owner.end(), [&job](const std::vector<Job>& other) {
      return other[0].owner == job.owner;
    });
    if (same != by_owner.end())
      same->push_back(job);
    else
      by_owner.push_back({job});
  }
  ncclResult_t result = ncclSuccess;
  std::vector<std::vector<Job>> now;
  for (std::vector<Job>& list : by_owner) {
    Communicator* owner = list[0].owner;
    if (list[0].made != owner) owner->job->begin();  // a creation job has begun with its handle
    if (owner->config.blocking) {
      now.push_back(std::move(list));
    } else {
      result = ncclInProgress;
      std::thread([list = std::move(list)] { run_in_order(list); }).detach();
    }
  }
  // Communicators of one process may wait for each other, so their jobs run in parallel.
  std::vector<ncclResult_t> results(now.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < now.size(); i++)
    threads.emplace_back([&, i] { results[i] = run_in_order(now[i]); });
  if (!now.empty()) results[0] = run_in_order(now[0]);
  for (std::thread& thread : threads) thread.join();
  const auto failed =
      std::find_if(results.begin(), results.end(), [](ncclResult_t one) { return one != ncclSuccess; });
  return failed != results.end() ? *failed : result;
}

ncclResult_t Group::launch_tasks() {
  std::vector<std::pair<Communicator*, Task>> tasks = std::exchange(tasks_, {});
  while (!tasks.empty()) {
    Communicator* communicator = tasks.front().first;
    std::vector<Task> own;
    for (const auto& [other, task] : tasks) {
      if (other == communicator) own.push_back(task);
    }
    std::erase_if(tasks, [communicator](const auto& item) { return item.first == communicator; });
    NCCLSIM_TRY(launch(communicator, own));
  }
  return ncclSuccess;
}

}  // namespace ncclsim
