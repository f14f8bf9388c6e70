// SPDX-License-Identifier: Apache-2.0
// The group: the calls of a thread between ncclGroupStart and ncclGroupEnd. A call outside of a group is a
// group with one call.
//
// Threads: each thread has its own group. Errors: the first error of a call within the group becomes the
// group's error, and the group then does nothing.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

struct Job {
  Communicator* owner = nullptr;  // the communicator whose state shows the job
  Communicator* made = nullptr;   // the communicator that the job creates, or null
  ncclComm_t* out = nullptr;      // the program's variable for the new communicator
  std::function<ncclResult_t()> work;
};

class Group {
 public:
  static Group& current();

  void start() { depth_++; }
  // Ends the group. `simulate`: no operation is issued.
  ncclResult_t end(bool simulate = false);
  // Records the group's first error, and returns `result`.
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

// Runs a call within the thread's group. Ends the group if this call began it.
template <typename F>
ncclResult_t in_group(F&& call) {
  Group& group = Group::current();
  group.start();
  const ncclResult_t noted = group.note(call());
  const ncclResult_t ended = group.end();
  return noted != ncclSuccess ? noted : ended;
}

}  // namespace ncclsim
