// SPDX-License-Identifier: Apache-2.0
// The agent's end of a mover's socketpair. It carries messages of libckpt/protocol/wire/mover_messages.h over
// a PacketLink.
// Threads: the event loop. Errors: `closed` is called once, when the mover has disconnected or sent an
// invalid message.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/io/packet_link.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

namespace mover = wire::mover;

class MoverLink : public std::enable_shared_from_this<MoverLink> {
 public:
  struct Handlers {
    std::function<void(mover::Packet)> message;
    std::function<void(Error)> closed;
  };
  static Result<std::shared_ptr<MoverLink>> create(const asio::any_io_executor& executor, UniqueFd socket,
                                                   Handlers handlers);
  // Sends a message. The error is kInvalidArgument if the message does not fit into a packet.
  Result<void> send(const mover::Message& message, std::vector<UniqueFd> descriptors = {});
  void close() { packets_->close(); }

 private:
  explicit MoverLink(std::shared_ptr<PacketLink> packets) : packets_(std::move(packets)) {}
  std::shared_ptr<PacketLink> packets_;
};

}  // namespace ckpt::agent
