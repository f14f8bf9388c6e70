// SPDX-License-Identifier: Apache-2.0
// `protect`: snapshots of jobs at an interval. The request and its state are part of the job's record. The
// schedule decides when the next snapshot begins (protection_schedule.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused; those of the store.
#pragma once

#include <optional>
#include <string>

#include "coordinator/images/snapshots.h"
#include "coordinator/policies/protection/protection_rules.h"
#include "coordinator/policies/protection/protection_schedule.h"

namespace ckpt::coordinator {

struct ProtectRequest {
  std::int64_t every_ms = 0;
  std::string to;  // NODE or an absolute folder; empty: the job's own node
  std::uint32_t keep = 2;
  bool force = false;  // permits intervals below 5 minutes for a transparent job
  bool dry_run = false;
};

struct Protected {
  Protection protection;
  std::optional<double> expected_pause_ms;  // the expected pause of each snapshot, as far as known
  std::string note;
};

// Returns the protection for the new request. Facts about the last snapshot are preserved.
[[nodiscard]] Protection requested_protection(const Job& job, const ProtectRequest& wish,
                                              const Destination& to);

class Protections {
 public:
  struct Dependencies {
    EventLog& events;
    const NodeTable& nodes;
    JobTable& jobs;
    Snapshots& snapshots;
    SnapshotOrders& orders;
    control::asio::any_io_executor executor;
  };
  explicit Protections(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the schedule. Call this once, after the jobs have been loaded.
  void start();
  // Protects the job. The destination is checked first. An earlier protection stays in force if the new
  // destination is not writable.
  control::Task<Result<Protected>> protect(JobId id, ProtectRequest wish);
  Result<void> unprotect(JobId id);

 private:
  [[nodiscard]] Result<Protected> plan(JobId id, const ProtectRequest& wish) const;
  control::Task<> run();
  control::Task<> take_one(JobId id);
  void note(JobId id, const Result<void>& taken);
  // Returns the node where a snapshot of the job could be taken now.
  [[nodiscard]] std::optional<std::string> where_now(JobId id) const;

  Dependencies deps_;
  ProtectionSchedule schedule_;
};

}  // namespace ckpt::coordinator
