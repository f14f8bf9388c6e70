// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/agent_link.h"

#include "libckpt/net/control/log.h"

namespace ckpt::mover {

void AgentLink::send(const messages::Message& message, std::span<const int> descriptors) {
  const std::lock_guard lock(mutex_);
  if (auto sent = messages::send_message(socket_.get(), message, descriptors); !sent)
    spdlog::warn("message not sent to the agent: message {} reason {}", messages::name_of(message),
                 sent.error().to_string());
}

}  // namespace ckpt::mover
