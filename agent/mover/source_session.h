// SPDX-License-Identifier: Apache-2.0
// The source's side of a session: builds the plan, runs rounds until they pay no more, then the final one.
//
// Threads: see session.h; one thread per session drives the sender (run()), the control loop leaves orders for it.
#pragma once

#include <condition_variable>
#include <optional>
#include <thread>

#include "agent/mover/host_state.h"
#include "agent/mover/host_stream.h"
#include "agent/mover/session.h"
#include "libckpt/engine/convergence.h"
#include "libckpt/engine/sender.h"
#include "libckpt/image/plan.h"
#include "libckpt/wire/mover_messages.h"

namespace ckpt::mover {

class SourceSession final : public Session, private engine::SenderObserver {
 public:
  using Session::Session;
  ~SourceSession() override;
  bool handle(messages::Packet& packet) override;
  void attach_tensors(const messages::AttachTensors& request) override;
  void drop_tensors(const messages::DropTensors& request) override;
  void tick() override;

 private:
  struct LiveExtent {
    image::Extent extent;
    std::string tensor;
  };

  void let_go(std::uint64_t region) override;
  void attached() override;
  void on_mismatch(const engine::MismatchEvent& event) override;

  // The control loop's.
  void start(const messages::StartSource& request);
  void set_limits(const messages::MoverLimits& limits);
  void final_round(const messages::FinalRound& request, UniqueFd host_state);
  Result<void> host_room(const messages::HostRoom& request, UniqueFd file);
  Result<void> host_grew(const messages::HostGrew& request);
  void send_progress();
  // The session's thread.
  void run();
  Result<void> move();
  Result<void> open_sender();
  [[nodiscard]] std::uint64_t allowed_shadow_memory() const;
  Result<void> send_new_tensors(bool at_last = false);
  Result<void> add_extents(const image::Plan& plan);
  Result<void> precopy();
  Result<engine::RoundReport> run_round();
  void count(const engine::RoundReport& report);
  Result<void> verify_ahead();
  void report_advice(engine::Advice advice);
  Result<void> keep_fresh();
  Result<void> finish();
  void announce_host_state();
  // `host_state`: what the order gives, unless it is host_stream_.
  Result<engine::RoundReport> run_final(const messages::FinalRound& order, UniqueFd file,
                                        std::optional<HostStateView>& host_state);
  Result<std::vector<std::byte>> manifest(const track::Fingerprint& host);
  void measure_clock();
  Result<void> measure_memory();
  bool wait_for_order(Nanos timeout);  // a final round or the end; false: the time is over
  void fill(messages::SourceCounters& counters) const;

  messages::StartSource request_;
  std::thread thread_;

  std::mutex order_mutex_;  // orders, sender_ while it is made, convergence_
  std::condition_variable ordered_;
  std::optional<messages::FinalRound> final_order_;
  UniqueFd final_file_;
  std::shared_ptr<HostStream> host_stream_;  // outlives the sender, which reads it
  Nanos final_received_ns_ = 0;
  bool manifest_released_ = false;
  bool ending_ = false;
  bool finished_ = false;  // the target has verified
  std::shared_ptr<engine::Sender> sender_;
  std::optional<engine::Convergence> convergence_;
  std::uint64_t bandwidth_ = 0;

  std::vector<wire::TensorInfo> new_tensors_;    // Session::mutex_; not yet in a plan
  std::map<std::uint64_t, LiveExtent> extents_;  // Session::mutex_
  std::uint64_t next_extent_ = 1;
  std::uint64_t tensors_sent_ = 0;

  // Of the session's thread.
  std::uint32_t rounds_ = 0;
  Nanos last_round_time_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t dirty_bytes_ = 0;  // after the first round
  std::uint64_t host_bytes_ = 0;
  std::uint64_t link_rate_ = 0;
  std::uint64_t scan_rate_ = 0;  // a plain read, or the fastest scan
  bool host_announced_ = false;
  engine::ClockOffset clock_;
  bool has_clock_ = false;
  engine::RoundReport final_report_;
};

}  // namespace ckpt::mover
