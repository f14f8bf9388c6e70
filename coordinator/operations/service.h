// SPDX-License-Identifier: Apache-2.0
// The API's requests about jobs, applied to the tables: submit, adopt, start, stop, wait.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused, kNotSupported (nothing was changed), kUnavailable (a node is
// disconnected).
#pragma once

#include <optional>
#include <string>

#include "coordinator/fleet/job_admission.h"
#include "coordinator/fleet/whole_job.h"
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
  WholeJob job;
  std::vector<Displacement> displaced;
};

class Service {
 public:
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
  // Submits a job of one or several ranks with a GPU each. Either all ranks start, or the ranks that started
  // are stopped.
  control::Task<Result<Submitted>> submit(SubmitRequest request);
  // Adopts a process (adopt.cc). Without a node, every connected node is queried whether the machine is its
  // own.
  control::Task<Result<WholeJob>> adopt(AdoptRequest request);
  // Sends StartJob for a rank that is stored as starting, at first or again after its node reconnected.
  control::Task<> start(JobId id);
  // Stops ranks of one job, in one write: WholeJob::ranks, or some of them. The stop is recorded, and orders
  // are sent until no instance of the ranks runs (order_sender.h). If a node is disconnected the order stays
  // in force. The rank counts as not ended until the node reports its end. A repeated call sets a new grace
  // time.
  Result<void> stop(const std::vector<Job*>& ranks, std::int64_t grace_ms);
  // Removes ranks of one job that have ended, with the data that the nodes store about them, except images.
  // Returns kRefused, with all ranks still there, if one of them is live.
  Result<void> forget(const std::vector<Job*>& ranks);
  // Confirms ranks that were accepted on a node's report, because a user moves their job. `whole` is
  // Job::whole().
  void confirm_by_move(JobId whole);

 private:
  // Starts the ranks of a new job. If one cannot start, the other ranks are stopped.
  control::Task<Result<WholeJob>> start_all(JobId whole);
  control::Task<Result<void>> start_or_explain(JobId id);
  // Orders the nodes to remove their data about a removed rank.
  void send_forget(JobId id);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
