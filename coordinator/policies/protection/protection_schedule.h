// SPDX-License-Identifier: Apache-2.0
// The schedule of the next snapshot of each protected job. The caller passes all times (Unix milliseconds),
// so tests need no clock.
//
// A snapshot begins `every` after the previous one began, or when the previous one ends if that is later. At
// most one snapshot runs per node at a time, the one that is overdue the longest first. So jobs that were
// protected at the same moment are snapshotted one after another. A job that waits for one of its nodes keeps
// its other nodes reserved. After a failure the interval doubles, up to ten minutes (or the interval, if it
// is longer). A job that cannot have a snapshot now (it moves, it is parked, a node of it is disconnected)
// keeps its turn.
// Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::coordinator {

class ProtectionSchedule {
 public:
  static constexpr std::int64_t kLongestBackoffMs = 600'000;

  // Adds a job, or changes the interval of a protected job. `begun_ms` is the begin of its last snapshot.
  // With 0, the first snapshot is due at once.
  void protect(wire::JobId job, std::int64_t every_ms, std::int64_t begun_ms, unsigned failures);
  void drop(wire::JobId job);
  // Drops the jobs that no longer exist. A job whose snapshot runs stays until its end, because it occupies
  // its nodes.
  void drop_removed(const std::function<bool(wire::JobId)>& exists);

  using Nodes = std::set<std::string>;
  // A function that returns the nodes on which a job's snapshot could be taken now, or nullopt if none can be
  // taken now.
  using Where = std::function<std::optional<Nodes>(wire::JobId)>;
  // Returns the jobs whose snapshots must begin now. The caller calls began() for each.
  [[nodiscard]] std::vector<wire::JobId> due(std::int64_t now_ms, const Where& where) const;
  void began(wire::JobId job, Nodes nodes, std::int64_t now_ms);
  void ended(wire::JobId job, std::int64_t now_ms, bool good);

  // Returns the earliest time after `now_ms` at which a snapshot becomes due, or nullopt if there is none.
  [[nodiscard]] std::optional<std::int64_t> next_due(std::int64_t now_ms) const;
  [[nodiscard]] std::optional<std::int64_t> due_of(wire::JobId job) const;

 private:
  struct Entry {
    std::int64_t every_ms = 0;
    std::int64_t begun_ms = 0;
    std::int64_t due_ms = 0;
    unsigned failures = 0;
    bool running = false;
    Nodes nodes;  // the nodes where the snapshot runs
  };
  static std::int64_t interval_of(const Entry& entry);

  std::map<wire::JobId, Entry> entries_;
};

}  // namespace ckpt::coordinator
