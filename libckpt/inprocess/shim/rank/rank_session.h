// SPDX-License-Identifier: Apache-2.0
// A rank's session with its keeper in an unmodified program. One service thread, with all signals blocked,
// answers keeper and agent (local/messages.h, "Transparent mode"). A second thread exists only while the gate
// is being closed. The service thread can therefore answer requests for which the calls inside may be
// waiting.
// Threads: serve() and the functions it calls run on the service thread. The program's threads call
// region_added, region_freed and wait_for_frees. One mutex is taken before any lock of shim/memory, never
// after. Ownership: the link; the session exists as long as the process. A rank that loses its keeper kills
// itself, because no process could enforce its lease any more. Errors: answered as Failed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/export_stream.h"
#include "libckpt/inprocess/local/keeper_link.h"
#include "libckpt/inprocess/shim/memory/memory.h"

namespace ckpt::shim {

class RankSession {
 public:
  // Connects to the keeper at `socket_path`. The driver must be initialized.
  static Result<std::unique_ptr<RankSession>> create(const std::string& socket_path);
  // Starts the service thread. The session must exist as long as the process.
  Result<void> start();
  // Drops, in a forked child, its copy of the parent's session. Takes no lock.
  void forget_in_child() noexcept;

 private:
  using Uuid = std::array<std::uint8_t, 16>;

  explicit RankSession(std::unique_ptr<local::KeeperLink> link);

  // The following functions are defined in rank_session.cc.
  void serve();
  void handle(local::Received received);
  Result<void> handle_message(std::uint64_t request, local::Received& received);
  Result<void> send(std::uint64_t request, local::Body body, std::span<const int> descriptors = {});
  Result<void> refuse(std::uint64_t request, local::MessageType type, const Error& error);
  Result<void> describe(std::uint64_t request);
  local::StateSummary summary() const;
  local::RegionRecord record_of(const RegionInfo& region) const;
  static local::TensorRecord tensor_of(const RegionInfo& region);
  Result<void> leave_for_dump(std::uint64_t request);
  void wait_to_be_called();

  // The following functions are defined in exporting.cc.
  void listen();
  Result<void> start_export(std::uint64_t request);
  Result<void> pump_exports();
  Result<void> send_batch(const local::ExportStream::Batch& batch);
  void region_added(const RegionInfo& region);
  void region_freed(const RegionInfo& region);
  bool wait_for_frees();

  // The following functions are defined in pausing.cc.
  Result<void> begin_pause(std::uint64_t request);
  Result<void> end_pause(const local::Resume& resume, std::uint64_t request);
  Result<void> lease_ended();
  Result<void> lease_came_back();
  Result<void> close_gate(bool for_pause);
  Result<void> gate_closed();
  Result<void> send_paused_if_drained();
  Result<void> send_running();

  // The following functions are defined in moving.cc.
  Result<void> release(std::uint64_t request, const local::Release& held);
  Result<void> map_batch(std::uint64_t request, const local::MapBatch& batch,
                         std::span<const UniqueFd> descriptors);
  Result<void> map_end(std::uint64_t request, const local::Map& map);
  Result<void> make(std::uint64_t request, const local::Make& order);
  Result<void> give_up_mapping(std::uint64_t request, const Error& error);

  // The state of the rank. kRunning: the gate is open, or closed because the lease has expired
  // (lease_closed_). kClosing: a thread closes the gate. kDraining: the gate is closed, and Paused waits
  // until the mover knows every region. kPaused: Paused was sent.
  enum class State { kRunning, kClosing, kDraining, kPaused };
  // The thread that closes the gate, and its result.
  struct Closing {
    bool for_pause = false;
    std::thread thread;
    UniqueFd done;  // an eventfd that signals the result
    Result<void> result = ok();
    Nanos quiesced_ns = 0;
  };
  struct ResumeOrder {
    std::uint64_t request = 0;
    std::uint64_t incarnation = 0;
  };

  std::unique_ptr<local::KeeperLink> link_;
  std::vector<Uuid> uuids_;  // the UUIDs of the devices, by device number

  std::mutex mutex_;
  std::condition_variable freed_;
  local::ExportStream exports_;
  std::map<std::uint64_t, RegionInfo> announced_;  // the regions that this export has reported
  std::uint64_t frees_answered_ = 0;

  State state_ = State::kRunning;
  std::uint64_t pause_request_ = 0;  // the number of the request for the pause that is requested, in progress
                                     // or reached; 0 if there is none
  Nanos pause_asked_ns_ = 0;
  std::optional<ResumeOrder> order_;  // an order to continue as soon as the lease is valid again
  bool lease_over_ = false;
  bool lease_closed_ = false;
  bool left_ = false;  // whether the rank has left for a dump
  Closing closing_;
};

}  // namespace ckpt::shim
