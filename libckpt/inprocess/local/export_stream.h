// SPDX-License-Identifier: Apache-2.0
// The state of one Export, without I/O: the regions that were sent to a mover. Batches have at most 64
// regions, and each is sent after the acknowledgement of the last. Frees are reported for regions that were
// sent, and remembered until the mover has released the regions.
// Threads: no lock inside; the session locks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ckpt::local {

class ExportStream {
 public:
  // Starts an export with these regions and forgets a former export.
  void start(std::uint64_t request, const std::vector<std::uint64_t>& regions);
  void stop();

  [[nodiscard]] bool active() const { return request_ != 0; }
  [[nodiscard]] std::uint64_t request() const { return request_; }
  // Returns whether a region was freed while a mover may still hold its memory.
  [[nodiscard]] bool waits_for_frees() const { return !freed_.empty(); }

  void region_added(std::uint64_t id);
  // Removes a region that was not part of the last batch after all.
  void forget(std::uint64_t id) { sent_.erase(id); }
  // Notes a free. Returns true if the mover must be notified.
  bool region_freed(std::uint64_t id, std::uint64_t generation);

  struct Batch {
    std::uint64_t sequence = 0;
    std::vector<std::uint64_t> regions;
  };
  // Returns the next batch to send. Returns nullopt while the last batch is not acknowledged, or while no
  // region waits.
  std::optional<Batch> next_batch();
  // Returns whether all regions have been sent and acknowledged.
  [[nodiscard]] bool drained() const { return !unacknowledged_ && waiting_.empty(); }
  // Returns true once, when all regions of start() have been sent and acknowledged.
  bool consume_initial_end();

  void acknowledged(std::uint64_t sequence);
  void free_acknowledged(std::uint64_t id, std::uint64_t generation);

 private:
  std::uint64_t request_ = 0;
  std::uint64_t sequence_ = 0;
  bool unacknowledged_ = false;
  bool initial_end_due_ = false;
  std::deque<std::uint64_t> waiting_;
  std::set<std::uint64_t> sent_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> freed_;
};

}  // namespace ckpt::local
