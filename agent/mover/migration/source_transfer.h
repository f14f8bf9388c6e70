// SPDX-License-Identifier: Apache-2.0
// The source's side of a session. It builds the plan, runs rounds as long as they are useful, and then runs
// the final round.
//
// Threads: see session.h. One thread per session drives the sender (run()), and the control loop leaves
// orders for that thread.
#pragma once

#include <condition_variable>
#include <optional>
#include <thread>

#include "agent/mover/migration/source_extents.h"
#include "agent/mover/migration/source_host_state.h"
#include "agent/mover/migration/source_measures.h"
#include "agent/mover/migration/wire_rate.h"
#include "agent/mover/session/session.h"
#include "libckpt/datapath/engine/source/policy/convergence.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::mover {

class SourceTransfer final : public Session, private engine::SenderObserver {
 public:
  using Session::Session;
  ~SourceTransfer() override;
  bool handle(messages::Packet& packet) override;
  void attach_tensors(const messages::AttachTensors& request) override;
  void drop_tensors(const messages::DropTensors& request) override;
  void tick() override;

 private:
  void release(std::uint64_t region) override;
  void attached() override;
  void on_mismatch(const engine::MismatchEvent& event) override;

  // Handles orders. The control loop calls these functions.
  void start(const messages::StartSource& request);
  void set_limits(const messages::MoverLimits& limits);
  void final_round(const messages::FinalRound& request, UniqueFd host_state);
  Result<void> open_host_state_file(const messages::HostStateFile& request, UniqueFd file);
  Result<void> host_grew(const messages::HostGrew& request);
  void send_progress();
  void drop_from_sender(const std::vector<std::uint64_t>& extents);
  // Runs the session's thread.
  void run();
  Result<void> move();
  Result<void> open_sender();
  Result<void> send_new_tensors(bool at_last = false);
  Result<void> precopy();
  Result<engine::RoundReport> run_round();
  Result<bool> refresh();  // runs a round after the decision; returns false if the round was interrupted
  Result<void> verify_ahead();
  Result<void> last_round();
  void report_advice(engine::Advice advice);
  Result<void> keep_fresh();
  Result<void> finish();
  void announce_host_state();
  Result<bool> wait_for_host_memory();
  Result<std::vector<std::byte>> manifest();
  [[nodiscard]] std::shared_ptr<const track::FingerprintParams> chunk_params() const;
  Result<void> measure_memory();
  [[nodiscard]] bool shares_link();  // returns true if host state is sent before the pause
  [[nodiscard]] bool may_yet_fit();
  bool wait_for_order(Nanos timeout);  // waits for the final round's order or the session's end; returns
                                       // false after the timeout
  Result<void> stop_copy();
  Nanos estimate();  // returns the estimated pause; 0 if there is none yet
  messages::SourceCounters counters();

  messages::StartSource request_;
  std::thread thread_;

  std::mutex order_mutex_;  // guards orders, host_state_, sender_ while it is created, convergence_
  std::condition_variable ordered_;
  std::optional<messages::FinalRound> final_order_;
  UniqueFd final_file_;
  SourceHostState host_state_;
  Nanos final_received_ns_ = 0;
  bool manifest_released_ = false;
  bool ending_ = false;
  bool finished_ = false;  // true after the target has verified
  std::shared_ptr<engine::Sender> sender_;
  std::optional<engine::Convergence> convergence_;
  WireRate wire_rate_;
  std::uint64_t bandwidth_ = 0;

  SourceExtents extents_;  // guarded by Session::mutex_

  // Only the session's thread uses this field.
  SourceMeasures measures_;
};

}  // namespace ckpt::mover
