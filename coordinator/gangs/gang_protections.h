// SPDX-License-Identifier: Apache-2.0
// `protect` for gangs: a set of images at an interval. The request and its state are part of each rank's
// record. A set that is due waits until the ranks are free. A failed set is tried again after the interval.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound; kRefused, with the reason; those of the store.
#pragma once

#include <set>

#include "coordinator/gangs/gang_images.h"
#include "coordinator/images/protections.h"

namespace ckpt::coordinator {

class GangProtections {
 public:
  struct Dependencies {
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    GangImages& images;
    SnapshotOrders& orders;
    control::asio::any_io_executor executor;
  };
  explicit GangProtections(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the schedule. Call this once, after the jobs have been loaded.
  void start();
  // Protects the gang. With `wish.dry_run` nothing changes.
  control::Task<Result<Protected>> protect(JobId gang, ProtectRequest wish);
  Result<void> unprotect(JobId gang);

 private:
  control::Task<> run();
  void check();
  control::Task<> take(JobId gang);
  [[nodiscard]] Result<Protected> plan(const WholeJob& gang, const ProtectRequest& wish) const;
  // Stores the protection of all ranks, in one transaction.
  Result<void> store(const WholeJob& gang, const std::optional<Protection>& protection);

  Dependencies deps_;
  std::set<JobId> taking_;
};

}  // namespace ckpt::coordinator
