// SPDX-License-Identifier: Apache-2.0
// `protect`: images of a job at an interval, of all its ranks at one step. The request and its state are part
// of each rank's record. The schedule decides when the next images begin (protection_schedule.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused; those of the store.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "coordinator/gangs/job_images.h"
#include "coordinator/policies/protection/protection_rules.h"
#include "coordinator/policies/protection/protection_schedule.h"

namespace ckpt::coordinator {

struct ProtectRequest {
  std::int64_t every_ms = 0;
  std::string to;  // NODE or an absolute folder; empty: the node of each rank
  std::uint32_t keep = 2;
  bool force = false;  // permits intervals below 5 minutes for transparent ranks
  bool dry_run = false;
};

struct Protected {
  Protection protection;
  std::optional<double> expected_pause_ms;  // the expected pause of each snapshot, as far as known
  std::string note;
};

class Protections {
 public:
  struct Dependencies {
    EventLog& events;
    const NodeTable& nodes;
    JobTable& jobs;
    JobImages& images;
    SnapshotOrders& orders;
    control::asio::any_io_executor executor;
  };
  explicit Protections(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the schedule. Call this once, after the jobs have been loaded.
  void start();
  // Protects the whole job. Each rank's destination is checked first. An earlier protection stays in force if
  // a new destination is not writable. With `wish.dry_run` nothing changes.
  control::Task<Result<Protected>> protect(JobId whole, ProtectRequest wish);
  Result<void> unprotect(JobId whole);

 private:
  [[nodiscard]] Result<Protected> plan(JobId whole, const ProtectRequest& wish) const;
  // Checks whether the nodes of all ranks can write images to the destination.
  control::Task<Result<void>> check(JobId whole, Destination to);
  control::Task<> run();
  control::Task<> capture(JobId whole);
  void note(JobId whole, const Result<void>& captured);
  // Stores the protection of all ranks, in one transaction.
  Result<void> store(const WholeJob& job, const std::optional<Protection>& protection);
  void log(const char* kind, const WholeJob& job, const std::string& text);
  // Returns the nodes where images of the job could be taken now, or nullopt if no images can be taken now.
  [[nodiscard]] std::optional<std::set<std::string>> nodes_now(JobId whole) const;

  Dependencies deps_;
  ProtectionSchedule schedule_;
};

}  // namespace ckpt::coordinator
