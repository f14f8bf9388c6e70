// SPDX-License-Identifier: Apache-2.0
// A connection of the keeper with its queue of unsent messages. A slow peer never blocks the keeper.
// Threads: none. Ownership: the socket and the descriptors of queued messages. Errors: errors of
// local::Socket. Close the peer after an error.
#pragma once

#include <deque>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class Peer {
 public:
  Peer() = default;
  explicit Peer(local::Socket socket) : socket_(std::move(socket)) {}

  explicit operator bool() const { return static_cast<bool>(socket_); }
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool wants_to_write() const { return !queue_.empty(); }
  // Checks whether too many messages wait. The keeper must then take no more messages for this peer from the
  // other side.
  [[nodiscard]] bool is_full() const { return queue_.size() >= kMaxQueued; }

  Result<void> send(const local::Message& message, std::vector<UniqueFd> descriptors = {});
  Result<void> flush();
  Result<local::Received> receive() { return socket_.receive(); }
  Result<local::Socket::Peer> identity() const { return socket_.peer(); }
  // Checks whether the connected process has exited, even if another process has the same id. Returns false
  // if the kernel cannot report this (before Linux 6.5).
  [[nodiscard]] bool has_ended() const;

 private:
  static constexpr std::size_t kMaxQueued = 64;
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> descriptors;
  };
  local::Socket socket_;
  std::deque<Outgoing> queue_;
};

}  // namespace ckpt::keeper
