// SPDX-License-Identifier: Apache-2.0
// Handlers for the frames that agents send, by type. Each part of the coordinator registers the handlers of
// its messages when it is constructed, before agents may connect.
// Threads: one io_context on one thread. Errors: an error of a handler ends the connection of the node, so it
// is for frames that no agent sends.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>

#include "coordinator/fleet/node.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::coordinator {

class NodeFrames {
 public:
  using Handler = std::function<Result<void>(const Node&, std::span<const std::byte>)>;

  void take(wire::FrameType type, Handler handler) { handlers_[type] = std::move(handler); }
  // The same for a message that is decoded first.
  template <class M>
  void take(wire::FrameType type, std::function<void(const Node&, const M&)> handler) {
    take(type,
         [handler = std::move(handler)](const Node& node, std::span<const std::byte> body) -> Result<void> {
           CKPT_TRY(message, wire::decode<M>(body));
           handler(node, message);
           return ok();
         });
  }
  // kProtocol if there is no handler.
  Result<void> handle(const Node& node, wire::FrameType type, std::span<const std::byte> body) const {
    const auto handler = handlers_.find(type);
    if (handler != handlers_.end()) return handler->second(node, body);
    return Error(ErrorCode::kProtocol, "Frame " + std::string(to_string(type)) + " is not for a coordinator");
  }

 private:
  std::map<wire::FrameType, Handler> handlers_;
};

}  // namespace ckpt::coordinator
