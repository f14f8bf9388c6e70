// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/io/agent_port.h"

#include <utility>

namespace ckpt::keeper {

void AgentPort::attach(Peer peer) {
  drop();
  peer_ = std::move(peer);
}

void AgentPort::drop() {
  if (!peer_) return;
  peer_ = Peer();
  owner_.on_agent_gone();
}

void AgentPort::send(const local::Message& message, std::vector<UniqueFd> descriptors) {
  if (message.request == kOwnRequest) return owner_.on_own_answer(message.body);
  if (!peer_) return;
  if (!peer_.send(message, std::move(descriptors)).has_value()) drop();
}

void AgentPort::answer(std::uint64_t request, local::Body body, std::vector<UniqueFd> descriptors) {
  send({0, request, std::move(body)}, std::move(descriptors));
}

void AgentPort::refuse(std::uint64_t request, local::MessageType type, ErrorCode code,
                       const std::string& reason) {
  answer(request, to_failed(type, Error(code, reason)));
}

}  // namespace ckpt::keeper
