// SPDX-License-Identifier: Apache-2.0
// When the next snapshot of each protected job begins. Times are given by the caller (Unix milliseconds), so
// tests need no clock.
//
// A snapshot begins `every` after the one before began, or when that one ends, if it took longer. At most one
// runs at a time per node, the one that is overdue the longest first. So jobs that were protected at the same
// moment follow one another. After a failure the interval doubles, up to ten minutes (or the interval, if it
// is longer). A job that cannot have one now (it moves, it rests, its node is away) keeps its turn.
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

  // `begun_ms`: its last snapshot, 0 for none: then the first one is due at once. Again: a new interval.
  void protect(wire::JobId job, std::int64_t every_ms, std::int64_t begun_ms, unsigned failures);
  void drop(wire::JobId job);

  // The node on which a job's snapshot could be taken now; nullopt: not now.
  using Where = std::function<std::optional<std::string>(wire::JobId)>;
  // The jobs whose snapshot shall begin; the caller calls began() for each.
  [[nodiscard]] std::vector<wire::JobId> due(std::int64_t now_ms, const Where& where) const;
  void began(wire::JobId job, const std::string& node, std::int64_t now_ms);
  void ended(wire::JobId job, std::int64_t now_ms, bool good);

  // When to look again if nothing else happens; nullopt: never.
  [[nodiscard]] std::optional<std::int64_t> next_due(std::int64_t now_ms) const;
  [[nodiscard]] std::optional<std::int64_t> due_of(wire::JobId job) const;

 private:
  struct Entry {
    std::int64_t every_ms = 0;
    std::int64_t begun_ms = 0;
    std::int64_t due_ms = 0;
    unsigned failures = 0;
    bool running = false;
    std::string node;  // where it runs
  };
  static std::int64_t interval_of(const Entry& entry);

  std::map<wire::JobId, Entry> entries_;
};

}  // namespace ckpt::coordinator
