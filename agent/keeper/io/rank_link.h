// SPDX-License-Identifier: Apache-2.0
// The sessions of a job's processes with its keeper. One session belongs to the rank, which receives requests
// and answers them. A transparent job may have other sessions, of further processes that use a GPU. The
// keeper discards their messages. The next one becomes the rank's session when that session is closed. The
// job cannot be moved while they exist.
// Threads: one. Ownership: the connections. The owner outlives this object. Errors: none. If a write to a
// rank fails, the rank is dropped and the owner is notified.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/keeper/io/peer.h"
#include "libckpt/base/fd.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

class RankLink {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_rank_message(local::Received received) = 0;
    // Handles the loss of the rank's session, which is already closed.
    virtual void on_rank_gone() = 0;
    // Checks whether the agent cannot take more messages. The rank's messages are then not read.
    [[nodiscard]] virtual bool is_agent_full() const = 0;
  };
  struct Session {
    Peer peer;
    pid_t pid;
  };

  static constexpr std::size_t kMaxOthers = 256;

  explicit RankLink(Owner& owner) : owner_(owner) {}

  [[nodiscard]] bool is_open() const { return static_cast<bool>(rank_); }
  [[nodiscard]] Peer& peer() { return rank_; }
  [[nodiscard]] const std::vector<Session>& others() const { return others_; }
  [[nodiscard]] std::uint32_t count() const;
  // Returns the process of the rank's session, or 0 if there is none.
  [[nodiscard]] pid_t pid() const { return pid_; }

  void open(Peer peer, pid_t pid);
  // Sets the process of an adopted job, which has no session.
  void know(pid_t pid) { pid_ = pid; }
  void add_other(Peer peer, pid_t pid);
  // Makes the oldest of the other sessions the rank's session. Returns false if there is none.
  bool promote_other();
  // Closes all sessions after the program has exited. The owner is not notified.
  void close();
  void drop();

  void send(const local::Message& message, std::vector<UniqueFd> descriptors = {});
  // Reads all available messages. The rank's last messages arrive before its exit.
  void read();
  void read_other(std::size_t index);

  // Returns the reason why the sessions prevent a move of the job. An empty string means that they do not.
  [[nodiscard]] std::string why_not_movable() const;
  void mark_not_movable(local::StateSummary& summary) const;

 private:
  Owner& owner_;
  Peer rank_;
  pid_t pid_ = 0;
  std::vector<Session> others_;
};

}  // namespace ckpt::keeper
