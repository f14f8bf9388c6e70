// SPDX-License-Identifier: Apache-2.0
// The agent's orders for a snapshot under way. They come from the mover's control loop and go to the
// snapshot's thread: the final round, the host state, and the end of the session.
// Threads: take() and end() belong to the control loop, the rest to the snapshot's threads. Ownership: the
// host state's file, until it is waited for. Errors: kAborted once the session ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "agent/mover/session/agent_link.h"
#include "agent/mover/snapshots/snapshot_memory.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::mover {

class SnapshotOrders {
 public:
  struct SavedHostState {
    UniqueFd file;
    std::uint64_t bytes = 0;
  };

  // Takes an order. False: it is not an order for a snapshot.
  bool take(const messages::Message& message, UniqueFd file);
  // Cancels the memory's scans and copies, and ends every wait.
  void end();

  // Sets the memory that end() cancels; null: none.
  Result<void> set_memory(SnapshotMemory* memory);
  [[nodiscard]] bool is_ending();
  // kAborted once the session ends.
  Result<void> check();
  Result<messages::FinalRound> wait_for_final_round();
  Result<SavedHostState> wait_for_host_state();
  Result<void> pause(std::chrono::milliseconds time);

 private:
  // Waits until `ready`, with the lock held.
  template <class Ready>
  Result<void> wait_until(std::unique_lock<std::mutex>& lock, Ready ready);

  std::mutex mutex_;  // everything below
  std::condition_variable ordered_;
  std::optional<messages::FinalRound> final_;
  std::optional<messages::SnapshotHost> host_;
  UniqueFd host_file_;
  bool ending_ = false;
  SnapshotMemory* memory_ = nullptr;
};

}  // namespace ckpt::mover
