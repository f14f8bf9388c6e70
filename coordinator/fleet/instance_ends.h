// SPDX-License-Identifier: Apache-2.0
// Proves that nothing of a job lives on a node where it was given up (Job::may_live_on).
//
// An inventory without the instance is no proof: the node may be at an order to start it. So it is asked to end
// what there is, and what is about to start. Its answer comes after every instance that it had was reported.
// Then the node is taken off the list, durably.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: none; what a
// node did not answer is asked again with its next inventory.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

// The highest incarnation that anyone knows to have been started of it.
[[nodiscard]] Incarnation highest_known(const Job& job, const NodeTable& nodes);
// True if the node has an instance of the job, up to this incarnation, that is not over.
[[nodiscard]] bool has_instance(const Node& node, JobId job, Incarnation up_to);

class InstanceEnds {
 public:
  struct Parts {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    control::asio::any_io_executor executor;
  };
  explicit InstanceEnds(Parts parts) : parts_(std::move(parts)) {}

  // Asks the connected nodes of the list that show no instance. Others are ordered to end theirs first.
  void prove_soon(JobId id);
  // Asks one of them, for at most 10 s, and returns when it has answered, or at once while it is being asked.
  control::Task<> prove(JobId id, std::string node);

 private:
  [[nodiscard]] Incarnation given_up_to(const Job& job) const;
  void note_answer(JobId id, const std::string& node, Incarnation up_to, const Result<void>& answer);

  Parts parts_;
  std::set<std::pair<JobId, std::string>> asked_;
};

}  // namespace ckpt::coordinator
