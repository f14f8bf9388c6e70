// SPDX-License-Identifier: Apache-2.0
// Orders a snapshot from the node where the job runs, into its own vault, another node's, or a folder; and
// cancels one.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the nodes; kUnavailable for one that was given up before it was ordered.
#pragma once

#include <chrono>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/running_snapshots.h"
#include "coordinator/images/destination.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/images/vault_grants.h"

namespace ckpt::coordinator {

class SnapshotOrders {
 public:
  struct Dependencies {
    NodeCalls& calls;
    JobTable& jobs;
    const ImageCatalog& catalog;
    ImageNumbers& numbers;
    RunningSnapshots& running;
    VaultGrants& grants;
    control::asio::any_io_executor executor;
  };
  explicit SnapshotOrders(Dependencies deps) : deps_(std::move(deps)) {}

  // The answer of the vault that was asked for a grant.
  enum class Vault { kNotAsked, kAway, kGranted };
  struct Outcome {
    Result<void> taken = ok();
    bool has_begun = false;  // its node has reported on it
    bool failed = false;     // its node has reported so, or was never asked: there is no image
    Vault vault = Vault::kNotAsked;
  };

  // Makes the order for a snapshot of the job as it runs now. `end_after`: the job ends with it.
  Result<wire::TakeSnapshot> order_of(const Job& job, const Destination& to, bool end_after);
  // Returns once its node has answered. Meanwhile it is one of the running snapshots, as `shown`.
  control::Task<Outcome> give(wire::TakeSnapshot order, RunningSnapshot shown,
                              std::chrono::milliseconds limit);
  // Whether the job's node could write an image there; changes nothing.
  control::Task<Result<void>> check(JobId id, Destination to);
  // The destination of the job's protection; its own node's vault where that is failing or cannot be used.
  // `error`: then the reason.
  control::Task<Destination> working_destination(JobId id, std::string* error);
  // Returns once no snapshot has the job. kNotFound: none had it.
  control::Task<Result<void>> give_up(JobId id, std::string node, Incarnation incarnation);
  // Waiters for the snapshot's answer get it by this.
  void give_up_soon(JobId id, std::string node, Incarnation incarnation);

 private:
  [[nodiscard]] std::uint32_t suspects_of(const Job& job, const std::string& vault_job) const;
  // With the grant of the vault that it has.
  control::Task<Result<void>> send(wire::TakeSnapshot order, std::string node,
                                   std::chrono::milliseconds limit);
  control::Task<> give_up_and_log(JobId id, std::string node, Incarnation incarnation);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
