// SPDX-License-Identifier: Apache-2.0
// The keeper of one job. It is the parent of the job's rank and listens on the job's local socket. It
// enforces the rank's lease (SW-11) and relays messages between rank and agent. It stores the small state
// that must outlive an agent. Its parts are:
//   io/agent_port, io/rank_link   the connections
//   rank/rank_lease               the lease
//   rank/thread_hold              a restored program that must not continue yet
//   memory/memory_exchange        device memory of a transparent rank
//   memory/arriving_memory        host memory that follows a restored program
//   execution                     pauses, and the incarnation that runs
//   adopted_rank                  the same for a process without a session
//   termination, last_save        the termination of the rank by this keeper
// Threads: one, in run(). Ownership: process, sockets, timers, control page, memory sets. Errors: create()
// and run() fail only when the keeper cannot do its work at all. A misbehaving peer only loses its
// connection.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/keeper/adopted_rank.h"
#include "agent/keeper/execution.h"
#include "agent/keeper/init/lazy_pages.h"
#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/io/peer.h"
#include "agent/keeper/io/rank_link.h"
#include "agent/keeper/memory/arriving_memory.h"
#include "agent/keeper/memory/memory_exchange.h"
#include "agent/keeper/rank/rank_lease.h"
#include "agent/keeper/rank/rank_process.h"
#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/rank/thread_hold.h"
#include "agent/keeper/settings/config.h"
#include "agent/keeper/termination.h"
#include "libckpt/base/fd.h"
#include "libckpt/inprocess/local/barrier_count.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class Keeper : private AgentPort::Owner, private RankLink::Owner {
 public:
  struct Restored {
    pid_t pid = 0;
    UniqueFd namespace_alive;  // pipe that keeps the PID namespace alive (init/holder.h)
    std::optional<LazyPages> lazy_pages;
  };
  // Listens on FOLDER/keeper.sock and starts the rank. If `restored`, a child of this process, is given, that
  // child is the rank. The keeper releases its PID namespace after the child has exited.
  static Result<std::unique_ptr<Keeper>> create(Config config, const std::string& folder,
                                                std::optional<Restored> restored = {});

  // Runs until Shutdown, or until the rank has exited and no agent is attached.
  Result<void> run();

 private:
  struct Parts {
    Config config;
    std::string folder;
    local::Listener listener;
    local::ControlPageMapping page;
    std::optional<local::BarrierCount> barriers;  // barrier count of a gang's rank
    UniqueFd signals;
    RankProcess process;
    UniqueFd foreign;          // descriptor of a rank that is not a child; readable when the rank has exited
    UniqueFd namespace_alive;  // pipe that keeps the PID namespace of a restored rank alive
  };
  struct Timers {
    Timer deadline;
    Timer grace;
    Timer hold;
  };
  Keeper(Parts parts, Timers timers);
  void accept_restored(std::optional<LazyPages> pages);
  [[nodiscard]] bool is_transparent() const { return parts_.config.mode == MigrationMode::kTransparent; }

  Result<void> run_once();
  void accept_peers(local::Listener& listener);
  void greet(std::size_t index);
  void greet_rank(Peer& peer);
  [[nodiscard]] bool finished() const;

  void on_signals();
  void on_children();
  void on_hold_limit();
  void rank_changed(int status);
  void end_rank(int status);
  Result<void> rank_exited(int status);

  void read_agent();
  void on_agent_message(local::Received received);
  void shut_down(std::uint64_t request);
  void begin_export(local::Received received);
  void relay_to_rank(local::Received received);
  [[nodiscard]] std::string why_no_rank() const;
  void on_agent_gone() override;
  void on_own_answer(const local::Body& body) override { termination_.last_save().on_own_answer(body); }
  [[nodiscard]] local::Status status() const override;

  void welcome(Peer peer, const local::Hello& hello);
  [[nodiscard]] std::string why_turned_away(const Peer& peer, pid_t pid, const local::Hello& hello);
  void open_session(Peer peer, pid_t pid);
  void on_rank_message(local::Received received) override;
  void on_rank_gone() override;
  void end_misfit();
  [[nodiscard]] bool is_agent_full() const override {
    return agent_.is_attached() && agent_.peer().is_full();
  }

  Parts parts_;
  RankState state_;
  AgentPort agent_{*this};
  RankLink rank_{*this};
  ThreadHold hold_;
  RankLease lease_;
  MemoryExchange memory_;
  ArrivingMemory arriving_{parts_.process, agent_};
  Execution execution_;
  AdoptedRank adopted_;
  Termination termination_;
  std::optional<int> ended_;  // wait status of the program, while other processes of the job still have time
                              // to exit
  std::vector<Peer> unauthenticated_peers_;  // connected peers whose first message was not read yet
  bool shutdown_ = false;
};

}  // namespace ckpt::keeper
