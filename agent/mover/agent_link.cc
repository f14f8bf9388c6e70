// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/agent_link.h"

#include <spdlog/spdlog.h>

namespace ckpt::mover {

void AgentLink::send(const messages::Message& message, int descriptor) {
  const std::lock_guard lock(mutex_);
  const std::span<const int> descriptors =
      descriptor < 0 ? std::span<const int>() : std::span(&descriptor, 1);
  if (auto sent = messages::send_message(socket_.get(), message, descriptors); !sent)
    spdlog::warn("not told the agent: message {} reason {}", messages::name_of(message),
                 sent.assume_error().to_string());
}

}  // namespace ckpt::mover
