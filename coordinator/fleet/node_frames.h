// SPDX-License-Identifier: Apache-2.0
// Handlers for the frames that agents send, by frame type. Each part of the coordinator registers its
// handlers when it is constructed, before agents may connect.
// Threads: one io_context on one thread. Errors: an error of a handler closes the node's connection. Handlers
// return errors only for frames that no agent sends.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "coordinator/fleet/node.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::coordinator {

class NodeFrames {
 public:
  using Handler = std::function<Result<void>(const Node&, std::span<const std::byte>)>;

  void subscribe(wire::FrameType type, Handler handler) { handlers_[type] = std::move(handler); }
  // Registers a handler for a message, which is decoded before the call.
  template <class M>
  void subscribe(wire::FrameType type, std::function<void(const Node&, const M&)> handler) {
    subscribe(
        type,
        [handler = std::move(handler)](const Node& node, std::span<const std::byte> body) -> Result<void> {
          CKPT_TRY(message, wire::decode<M>(body));
          handler(node, message);
          return ok();
        });
  }
  // Sets the handler for commit messages of one protocol. The handler also receives the size of each message
  // as received.
  using CommitHandler = std::function<Result<void>(const Node&, const wire::CommitMessage&, std::size_t)>;
  void subscribe(wire::CommitKind kind, CommitHandler handler) {
    commit_handlers_[kind] = std::move(handler);
  }
  // Calls the handler for the frame. Returns kProtocol if there is no handler.
  Result<void> handle(const Node& node, wire::FrameType type, std::span<const std::byte> body) const {
    if (type == wire::FrameType::kCommit) return handle_commit(node, body);
    const auto handler = handlers_.find(type);
    if (handler != handlers_.end()) return handler->second(node, body);
    return Error(ErrorCode::kProtocol,
                 "Frame " + std::string(to_string(type)) + " is not meant for a coordinator");
  }

 private:
  Result<void> handle_commit(const Node& node, std::span<const std::byte> body) const {
    CKPT_TRY(message, wire::decode_commit(body));
    const auto handler = commit_handlers_.find(message.kind);
    if (handler != commit_handlers_.end()) return handler->second(node, message, body.size());
    return Error(ErrorCode::kProtocol, "This coordinator does not take part in that commit");
  }

  std::map<wire::FrameType, Handler> handlers_;
  std::map<wire::CommitKind, CommitHandler> commit_handlers_;
};

}  // namespace ckpt::coordinator
