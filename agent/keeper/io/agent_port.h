// SPDX-License-Identifier: Apache-2.0
// The keeper's end of its connection to the agent, if an agent is attached. Answers to the keeper's own
// requests (kOwnRequest, see last_save.h) also pass through this class, and go to the owner instead of the
// agent.
// Threads: one. Ownership: the connection. The owner outlives this object. Errors: none. If a write to the
// agent fails, the agent is dropped and the owner is notified.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/keeper/io/peer.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

// The request number of the keeper's own requests. No agent uses this number.
inline constexpr std::uint64_t kOwnRequest = ~std::uint64_t{0};

class AgentPort {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Handles the loss of the agent's connection, which is already closed.
    virtual void on_agent_gone() = 0;
    virtual void on_own_answer(const local::Body& body) = 0;
    [[nodiscard]] virtual local::Status status() const = 0;
  };

  explicit AgentPort(Owner& owner) : owner_(owner) {}

  // Attaches the newest agent. An agent that is already attached is dropped first.
  void attach(Peer peer);
  void drop();
  [[nodiscard]] bool is_attached() const { return static_cast<bool>(peer_); }
  [[nodiscard]] Peer& peer() { return peer_; }
  [[nodiscard]] const Peer& peer() const { return peer_; }

  void send(const local::Message& message, std::vector<UniqueFd> descriptors = {});
  void answer(std::uint64_t request, local::Body body, std::vector<UniqueFd> descriptors = {});
  // Answers with the keeper's current status. Request 0 sends an event.
  void send_status(std::uint64_t request) { answer(request, owner_.status()); }
  void refuse(std::uint64_t request, local::MessageType type, ErrorCode code, const std::string& reason);

 private:
  Owner& owner_;
  Peer peer_;
};

}  // namespace ckpt::keeper
