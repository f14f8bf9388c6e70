// SPDX-License-Identifier: Apache-2.0
// The agent's orders for a snapshot in progress: the final round, the host state, and the end of the session.
// The mover's control loop passes them to the snapshot's thread.
// Threads: the control loop calls apply() and end(). The snapshot's threads call the other functions.
// Ownership: the host state's file, until the snapshot waits for it. Errors: kAborted when the session ends.
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

  // Takes an order. Returns false if the message is not an order for a snapshot.
  bool apply(const messages::Message& message, UniqueFd file);
  // Cancels the memory's scans and copies, and ends every wait.
  void end();

  // Sets the memory that end() cancels. Null means none.
  Result<void> set_memory(SnapshotMemory* memory);
  [[nodiscard]] bool is_ending();
  // Returns kAborted when the session ends.
  Result<void> check();
  Result<messages::FinalRound> wait_for_final_round();
  Result<SavedHostState> wait_for_host_state();
  Result<void> pause(std::chrono::milliseconds time);

 private:
  // Waits until `ready` returns true, with the lock held.
  template <class Ready>
  Result<void> wait_until(std::unique_lock<std::mutex>& lock, Ready ready);

  std::mutex mutex_;  // guards all fields below
  std::condition_variable ordered_;
  std::optional<messages::FinalRound> final_;
  std::optional<messages::SnapshotHost> host_;
  UniqueFd host_file_;
  bool ending_ = false;
  SnapshotMemory* memory_ = nullptr;
};

}  // namespace ckpt::mover
