// SPDX-License-Identifier: Apache-2.0
// Hands the dirty chunks of a round to the lanes. Neighbours that fill a message go to one lane, the next ones
// to the lane with the shortest queue. Also measures the times in which a round only sends: the queues are
// full, or the scan is over. Internal to the engine.
//
// Threads: push(), the marks and the measurements belong to the sender's caller; wake() is for any thread.
// Ownership: core and lanes outlive it. Errors: push() returns the session's first error. Nothing is allocated
// per chunk.
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
  // Blocks while the lane's queue is full.
  Result<void> push(const DirtyChunk& chunk);
  void wake();

  // Bytes that have left the lanes so far, and the time now.
  [[nodiscard]] Drained drained() const;
  // From `since` until now the round only sent.
  void count_only_sending(const Drained& since);

  // The measurements of the round so far.
  [[nodiscard]] const Drained& only_sending() const noexcept { return only_sending_; }
  [[nodiscard]] Nanos held_up_time() const noexcept { return held_up_time_; }
  [[nodiscard]] Nanos first_copy_ns() const noexcept { return first_copy_ns_; }  // 0: no chunk yet

 private:
  void observe_encoding(const Drained& since);

  SenderCore& core_;
  const std::span<const std::unique_ptr<SendLane>> lanes_;
  std::size_t lane_ = 0;          // the next group's
  std::uint64_t group_left_ = 0;  // bytes of the present group
  Drained only_sending_;
  Nanos held_up_time_ = 0;
  Nanos first_copy_ns_ = 0;
};

}  // namespace ckpt::engine
