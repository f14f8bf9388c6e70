// SPDX-License-Identifier: Apache-2.0
// Passes the dirty chunks of a round to the lanes. Adjacent chunks that fill a message go to one lane, and
// the next chunks to the lane with the shortest queue. It also measures the times in which a round only
// sends: the queues are full, or the scan has ended. Internal to the engine.
//
// Threads: the sender's caller calls push(), the marks and the measurements; any thread may call wake().
// Ownership: core and lanes outlive it. Errors: push() returns the session's first error. Nothing is
// allocated per chunk.
#pragma once

#include <memory>
#include <span>

#include "libckpt/datapath/engine/source/send_lane.h"
#include "libckpt/datapath/engine/source/sender_core.h"

namespace ckpt::engine {

class LaneDispatch {
 public:
  struct Drained {
    std::uint64_t wire_bytes = 0;
    std::uint64_t plain_bytes = 0;
    Nanos time = 0;
  };

  LaneDispatch(SenderCore& core, std::span<const std::unique_ptr<SendLane>> lanes)
      : core_(core), lanes_(lanes) {}

  void begin_round();
  // Adds a chunk. Blocks while the lane's queue is full.
  Result<void> push(const DirtyChunk& chunk);
  void wake();

  // Returns the bytes that the lanes have sent so far, and the current time.
  [[nodiscard]] Drained drained() const;
  // Notes that the round only sent, from `since` until now.
  void count_only_sending(const Drained& since);

  // Returns the measurements of the round so far.
  [[nodiscard]] const Drained& only_sending() const noexcept { return only_sending_; }
  [[nodiscard]] Nanos held_up_time() const noexcept { return held_up_time_; }
  // Returns the time of the round's first copy, or 0 if there is no chunk yet.
  [[nodiscard]] Nanos first_copy_ns() const noexcept { return first_copy_ns_; }

 private:
  void observe_encoding(const Drained& since);

  SenderCore& core_;
  const std::span<const std::unique_ptr<SendLane>> lanes_;
  std::size_t lane_ = 0;          // the lane of the next group
  std::uint64_t group_left_ = 0;  // the remaining bytes of the current group
  Drained only_sending_;
  Nanos held_up_time_ = 0;
  Nanos first_copy_ns_ = 0;
};

}  // namespace ckpt::engine
