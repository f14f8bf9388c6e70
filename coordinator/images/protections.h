// SPDX-License-Identifier: Apache-2.0
// `protect`: jobs that get snapshots at an interval. The request and its state are a part of the job's
// record; the schedule decides when the next one begins (protection_schedule.h).
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
  std::string to;  // NODE, or an absolute folder; empty: the job's own node
  std::uint32_t keep = 2;
  bool force = false;  // a transparent job more often than every 5 minutes
  bool dry_run = false;
};

struct Protected {
  Protection protection;
  std::optional<double> expected_pause_ms;  // of each snapshot, as far as one can tell
  std::string note;
};

// The protection as it is requested now; what is known of its last snapshot stays.
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

  // Once, after the jobs have been loaded.
  void start();
  // Its destination is checked first: an earlier protection stays if it cannot be written there.
  control::Task<Result<Protected>> protect(JobId id, ProtectRequest wish);
  Result<void> unprotect(JobId id);

 private:
  [[nodiscard]] Result<Protected> plan(JobId id, const ProtectRequest& wish) const;
  control::Task<> run();
  control::Task<> take_one(JobId id);
  void note(JobId id, const Result<void>& taken);
  // The node where a snapshot could be taken now.
  [[nodiscard]] std::optional<std::string> where_now(JobId id) const;

  Dependencies deps_;
  ProtectionSchedule schedule_;
};

}  // namespace ckpt::coordinator
