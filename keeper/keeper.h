// SPDX-License-Identifier: Apache-2.0
// The keeper of one job: parent of its rank, end of its local socket, enforcer of its lease (rule 11), relay between rank and agent. It keeps the
// little state that must outlive an agent: phase, incarnation, deadline, last pause.
// Threads: one, in run(). Ownership: process, sockets, timers, control page. Errors: create() and run() fail only when the keeper
// cannot do its work at all; a misbehaving peer only loses its connection.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keeper/config.h"
#include "keeper/peer.h"
#include "keeper/rank_process.h"
#include "keeper/timer.h"
#include "libckpt/base/fd.h"
#include "libckpt/local/control_page.h"
#include "libckpt/local/socket.h"

namespace ckpt::keeper {

class Keeper {
 public:
  // Listens on FOLDER/keeper.sock and starts the rank.
  static Result<Keeper> create(Config config, const std::string& folder);

  // Until Shutdown, or until the rank has ended and no agent is attached.
  Result<void> run();

 private:
  struct Parts;
  explicit Keeper(Parts parts);

  // keeper.cc: events
  Result<void> run_once();
  void accept_peers();
  void greet(std::size_t index);
  void on_children();
  void on_signals();
  void rank_changed(int status);
  Result<void> rank_exited(int status);
  void rank_stopped();
  void rank_continued();
  void on_deadline();
  void on_grace_over();
  void set_deadline(Nanos deadline_ns);
  [[nodiscard]] bool finished() const;

  // from_agent.cc
  void read_agent();
  void handle_agent(local::Received received);
  void on_pause(std::uint64_t request);
  void on_resume(local::Received received);
  void on_moved(std::uint64_t request);
  void on_stop(std::uint64_t request, std::uint64_t grace_ms);
  void on_shutdown(std::uint64_t request);
  void relay_to_rank(local::Received received);
  void stop_export();
  void detach_agent();
  void send_agent(const local::Message& message, std::vector<UniqueFd> descriptors = {});
  void answer(std::uint64_t request, local::Body body) { send_agent({0, request, std::move(body)}); }
  void refuse(std::uint64_t request, local::MessageType type, ErrorCode code, const std::string& why);
  [[nodiscard]] local::Status status() const;

  // from_rank.cc
  void welcome_rank(Peer peer, const local::Hello& hello);
  void read_rank();
  void handle_rank(local::Received received);
  void on_paused(local::Received received);
  void on_running(const local::Message& message);
  void on_rank_failed(const local::Message& message);
  void detach_rank();
  void send_rank(const local::Message& message, std::vector<UniqueFd> descriptors = {});

  struct Parts {
    Config config;
    std::string folder;
    local::Listener listener;
    local::ControlPageMapping page;
    UniqueFd signals;
    Timer deadline;
    Timer grace;
    RankProcess process;
  };
  Parts parts_;
  std::vector<Peer> strangers_;  // connected, first message not read yet
  Peer agent_;
  Peer rank_;

  local::Phase phase_ = local::Phase::kStarting;
  std::uint64_t incarnation_;
  Nanos deadline_ns_ = local::kNoDeadline;
  bool lease_over_ = false;     // the gate is closed
  bool stop_reported_ = false;  // the rank is stopped because of it
  bool ended_by_keeper_ = false;
  bool moved_ = false;
  bool shutdown_ = false;
  int wait_status_ = 0;
  std::uint64_t pause_request_ = 0;
  std::uint64_t resume_request_ = 0;
  std::uint64_t export_request_ = 0;
  Nanos barrier_entry_ns_ = 0;
  Nanos quiesced_ns_ = 0;
  Nanos resumed_ns_ = 0;
};

}  // namespace ckpt::keeper
