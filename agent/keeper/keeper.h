// SPDX-License-Identifier: Apache-2.0
// The keeper of one job: parent of its rank, end of its local socket, enforcer of its lease (SW-11), relay
// between rank and agent. It keeps the little state that must outlive an agent: phase, incarnation, deadline,
// last pause. For a transparent rank it also holds the descriptors of its device memory (memory_bank.h).
// Threads: one, in run(). Ownership: process, sockets, timers, control page, memory sets. Errors: create()
// and run() fail only when the keeper cannot do its work at all; a misbehaving peer only loses its
// connection.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/keeper/config.h"
#include "agent/keeper/memory_bank.h"
#include "agent/keeper/peer.h"
#include "agent/keeper/rank_process.h"
#include "agent/keeper/timer.h"
#include "libckpt/base/fd.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class Keeper {
 public:
  // Listens on FOLDER/keeper.sock and starts the rank.
  // With `restored`, a child of this process, it takes that for the rank, and lets its PID namespace go when
  // that has ended.
  struct Restored {
    pid_t pid = 0;
    UniqueFd namespace_alive;  // init/holder.h
  };
  static Result<Keeper> create(Config config, const std::string& folder,
                               std::optional<Restored> restored = {});

  // Until Shutdown, or until the rank has ended and no agent is attached.
  Result<void> run();

 private:
  struct Parts;
  explicit Keeper(Parts parts);

  // keeper.cc: events
  Result<void> run_once();
  void accept_peers(local::Listener& listener);
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
  void withdraw_pause();
  void on_resume(local::Received received);
  void on_moved(std::uint64_t request);
  void on_stop(std::uint64_t request, std::uint64_t grace_ms);
  void on_kill(std::uint64_t request);
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

  // sessions.cc: a transparent job's processes that use a GPU
  [[nodiscard]] bool is_transparent() const { return parts_.config.way == local::Way::kTransparent; }
  void welcome_transparent(Peer peer, pid_t pid, const local::Hello& hello);
  void greet_rank(Peer& peer);
  void read_other(std::size_t index);
  void promote_other();
  [[nodiscard]] std::string why_not_movable() const;
  void mark_not_movable(local::StateSummary& summary) const;

  // last_save.cc: the kill of a rank whose context has come back by a restore
  void kill_rank();
  bool begin_last_save();
  void on_own_answer(const local::Body& body);
  void save_context();
  void on_saver_ended(int status);
  void on_last_save_late();
  void end_last_save(const std::string& why_not);
  [[nodiscard]] bool is_saving() const { return last_save_ == LastSave::kUnderWay; }
  [[nodiscard]] static bool is_own(std::uint64_t request);

  // adopted.cc: a process that was not started by us
  bool handle_adopted(const local::Received& received);
  void refuse_adopted(std::uint64_t request, local::MessageType type);
  void pause_adopted(std::uint64_t request);
  void resume_adopted(std::uint64_t request, const local::Resume& resume);
  void look_whether_stopped();

  // memory_requests.cc: release, map, make, dump
  void handle_memory_request(local::Received received);
  void handle_memory_answer(local::Received received);
  void on_deposit(local::Received received);
  void on_withdraw_regions(const local::WithdrawRegions& gone);
  void on_fetch(std::uint64_t request, const local::Fetch& fetch);
  void on_replace(local::Received received);
  [[nodiscard]] bool has_set(local::MemorySet set, std::uint64_t migration) const;
  void on_release(std::uint64_t request);
  void on_map(std::uint64_t request, const local::Map& map);
  void send_map_batch();
  void on_make(local::Received received);
  void on_prepare_dump(std::uint64_t request);
  void on_reattach(std::uint64_t request);
  void on_memory_failed(const local::Message& message);
  void keep_exported(const local::Received& received);
  void drop_exported();
  [[nodiscard]] bool may_begin(std::uint64_t request, local::MessageType type);
  void begin(local::MessageType type, std::uint64_t request) { pending_ = {type, request, request}; }
  void finish(local::Body answer, std::vector<UniqueFd> descriptors = {});

  // One request about the rank's memory is under way at a time.
  struct Pending {
    local::MessageType type{};  // none: 0
    std::uint64_t request = 0;  // as the rank was told
    std::uint64_t asker = 0;    // where the answer goes; 0: nobody is left who asked
  };
  struct Mapping {
    local::Map map;
    std::uint64_t last_id = 0;
    std::uint64_t sequence = 0;
  };

  struct Parts {
    Config config;
    std::string folder;
    local::Listener listener;
    local::ControlPageMapping page;
    UniqueFd signals;
    Timer deadline;
    Timer grace;
    RankProcess process;
    UniqueFd foreign;          // of a rank that is no child: readable when it has ended
    UniqueFd namespace_alive;  // of a restored one
  };
  Parts parts_;
  std::vector<Peer> strangers_;  // connected, first message not read yet
  Peer agent_;
  Peer rank_;
  struct Session {
    Peer peer;
    pid_t pid;
  };
  std::vector<Session> others_;  // sessions beside the rank's
  pid_t session_pid_ = 0;
  Nanos rank_lag_ = 0;         // of a restored rank's clock (rank_clock.h)
  bool has_outsider_ = false;  // a process outside of the group wanted a session

  local::Phase phase_ = local::Phase::kStarting;
  std::uint64_t incarnation_;  // the last one that it ran as; before it runs, the one that it was started for
  std::uint64_t resumes_as_ = 0;  // in phase kResuming
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

  local::MemoryState memory_ = local::MemoryState::kMapped;
  local::MemoryState memory_before_ = local::MemoryState::kMapped;  // the Release under way
  MemoryBank exported_;
  MemoryBank arrived_;
  std::uint64_t arrived_migration_ = 0;
  std::vector<std::uint64_t> fetch_order_;  // regions of the set that is being fetched
  Pending pending_;
  Mapping mapping_;
  bool dump_ready_ = false;
  std::optional<local::Listener> reattach_;
  enum class LastSave { kNone, kUnderWay, kOver };
  LastSave last_save_ = LastSave::kNone;
  std::string last_save_said_;  // how it went
  pid_t saver_ = 0;
  bool restored_ = false;  // the rank's context may have come back by a restore
  Nanos released_ns_ = 0;
  Nanos mapped_ns_ = 0;
};

}  // namespace ckpt::keeper
