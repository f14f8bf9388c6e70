// SPDX-License-Identifier: Apache-2.0
// The API's requests about jobs, applied to the tables: submit, adopt, start, stop, wait.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused, kNotSupported (nothing was changed), kUnavailable (a node is
// disconnected).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "coordinator/fleet/job_admission.h"
#include "coordinator/operations/gang_rendezvous.h"
#include "coordinator/operations/planner.h"
#include "coordinator/operations/preemptor.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {

// A request to make a running process a job.
struct AdoptRequest {
  std::int32_t pid = 0;
  std::string name;
  std::optional<std::string> node;
  std::string machine;            // boot id of the machine where `pid` is valid; empty: the node's machine
  std::uint64_t start_ticks = 0;  // start time of the process; 0: any process with that id
};

// A job that was started, and the jobs that were displaced for it.
struct Submitted {
  Job* job = nullptr;  // the job, or the first rank of a gang
  std::vector<Displacement> displaced;
};

class Service {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Dependencies {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    JobAdmission& admission;
    JobRunner& job_runner;
    const Planner& planner;
    const GangRendezvous& rendezvous;
    Preemptor& preemptor;
  };
  explicit Service(Dependencies deps) : deps_(deps) {}

  // Returns the plan that submit() would carry out. Changes nothing.
  [[nodiscard]] Result<RunPlan> plan(const SubmitRequest& request) const;
  control::Task<Result<Submitted>> submit(SubmitRequest request);
  // Submits a job of several ranks with a GPU each. Either all ranks start, or the ranks that started are
  // stopped. Returns kNotSupported with preempt.
  control::Task<Result<Submitted>> submit_gang(SubmitRequest request);
  // Adopts a process (adopt.cc). Without a node, every connected node is queried whether the machine is its
  // own.
  control::Task<Result<Job*>> adopt(AdoptRequest request);
  // Sends StartJob for a job that is stored as starting, at first or again after its node reconnected.
  control::Task<> start(JobId id);
  // Stops a job. The stop is recorded, and orders are sent until no instance of the job runs
  // (order_sender.h). If the node is disconnected the order stays in force, and the job has not ended before
  // the node reports it. A repeated call sets a new grace time.
  Result<void> stop(const Job& job, std::int64_t grace_ms);
  // Stops all ranks of a job, in one write.
  Result<void> stop_all(const std::vector<Job*>& ranks, std::int64_t grace_ms);
  control::Task<> wait_for_end(JobId id, Deadline deadline);
  // Removes a job that has ended, with the data that its nodes store about it, except its images. Returns
  // kRefused for a live job.
  Result<void> forget(const Job& job);
  // Confirms a job that was accepted on a node's report, because a user moves it.
  void confirm_by_move(JobId id);

 private:
  control::Task<Result<Job*>> start_or_explain(JobId id);
  void end_ranks(const std::vector<JobId>& ids);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
