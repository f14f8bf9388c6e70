// SPDX-License-Identifier: Apache-2.0
// The group: the calls of a thread between ncclGroupStart and ncclGroupEnd. A call outside is a group of one.
//
// Threads: one group for each. Errors: the first error of a call within the group is the group's, which then
// does nothing.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

struct Job {
  Communicator* owner = nullptr;  // whose state shows it
  Communicator* made = nullptr;   // what it makes, or null
  ncclComm_t* out = nullptr;      // where the program gets that
  std::function<ncclResult_t()> work;
};

class Group {
 public:
  static Group& current();

  void start() { depth_++; }
  // `simulate`: nothing is issued.
  ncclResult_t end(bool simulate = false);
  // Remembers the group's first error; returns the same.
  ncclResult_t note(ncclResult_t result);
  void add_job(Job job) { jobs_.push_back(std::move(job)); }
  void add_task(Communicator* communicator, const Task& task) { tasks_.push_back({communicator, task}); }

 private:
  static ncclResult_t run_jobs(const std::vector<Job>& jobs);
  ncclResult_t launch_tasks();

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::vector<Job> jobs_;
  std::vector<std::pair<Communicator*, Task>> tasks_;
};

// A call within the thread's group, which it ends if it began it.
template <typename F>
ncclResult_t in_group(F&& call) {
  Group& group = Group::current();
  group.start();
  const ncclResult_t noted = group.note(call());
  const ncclResult_t ended = group.end();
  return noted != ncclSuccess ? noted : ended;
}

}  // namespace ncclsim
