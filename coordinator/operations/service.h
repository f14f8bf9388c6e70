// SPDX-License-Identifier: Apache-2.0
// The API's requests about jobs, carried out on the tables: submit, adopt, start, stop, wait.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused, kNotSupported (nothing was touched), kUnavailable (a node is away).
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

// A process that runs already becomes a job.
struct AdoptRequest {
  std::int32_t pid = 0;
  std::string name;
  std::optional<std::string> node;
  std::string machine;            // boot id of the machine that counts so; empty: the node's
  std::uint64_t start_ticks = 0;  // 0: whichever process has the id
};

// A job that was started, and those that made place for it.
struct Submitted {
  Job* job = nullptr;  // of a gang its first rank
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

  // The plan that submit() would carry out; changes nothing.
  [[nodiscard]] Result<RunPlan> plan(const SubmitRequest& request) const;
  control::Task<Result<Submitted>> submit(SubmitRequest request);
  // A job of several ranks with a GPU each: all start, or those that have are stopped. kNotSupported with preempt.
  control::Task<Result<Submitted>> submit_gang(SubmitRequest request);
  // adopt.cc. Without a node every connected one is asked whose machine it is.
  control::Task<Result<Job*>> adopt(AdoptRequest request);
  // Sends StartJob for a job that is stored as starting (at first, or again after the node came back).
  control::Task<> start(JobId id);
  // Recorded, then carried out until nothing of the job lives (order_sender.h). Where its node is away the order stands,
  // and the job has not ended before that node reports it. Again: with the new grace.
  Result<void> stop(const Job& job, std::int64_t grace_ms);
  // All ranks of a job, in one write.
  Result<void> stop_all(const std::vector<Job*>& ranks, std::int64_t grace_ms);
  control::Task<> wait_for_end(JobId id, Deadline deadline);
  // Removes a job that has ended, with what its nodes keep of it but for its images. kRefused for a live one.
  Result<void> forget(const Job& job);
  // A user moves it: what was taken in counts as confirmed.
  void confirm_by_move(JobId id);

 private:
  control::Task<Result<Job*>> start_or_explain(JobId id);
  void end_ranks(const std::vector<JobId>& ids);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
