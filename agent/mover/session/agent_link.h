// SPDX-License-Identifier: Apache-2.0
// The mover's end of the socket to its agent.
// Threads: any thread may call send(). Only the control loop receives. The control loop detects a
// disconnected agent, and messages to such an agent are discarded.
#pragma once

#include <mutex>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::mover {

namespace messages = ckpt::wire::mover;

class AgentLink {
 public:
  explicit AgentLink(UniqueFd socket) : socket_(std::move(socket)) {}
  void send(const messages::Message& message, std::span<const int> descriptors = {});
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::mutex mutex_;
};

}  // namespace ckpt::mover
