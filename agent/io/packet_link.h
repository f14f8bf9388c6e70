// SPDX-License-Identifier: Apache-2.0
// Packets with descriptors over a connected SOCK_SEQPACKET socket, on the event loop: the base of keeper
// links and mover links. Sending never blocks: packets that the peer's buffer does not take wait here, in
// order, up to 64 MiB of them.
// Threads: the loop only. Ownership: the link owns the socket and the descriptors it was given or has
// received until it hands them on. Errors: `closed` is called once, on the loop, and never from inside send()
// or close(). kUnavailable: the peer is gone; kProtocol: a packet is over the limit; kOutOfMemory: too much
// waits for the peer.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "agent/io/async.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent {

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;
};

class PacketLink : public std::enable_shared_from_this<PacketLink> {
 public:
  struct Handlers {
    std::function<void(Packet)> packet;
    std::function<void(Error)> closed;
  };

  // Takes a connected socket; `max_bytes` bounds a received packet.
  static Result<std::shared_ptr<PacketLink>> create(const asio::any_io_executor& executor, UniqueFd socket,
                                                    std::size_t max_bytes);
  PacketLink(const PacketLink&) = delete;
  PacketLink& operator=(const PacketLink&) = delete;

  // Begins to read. The handlers are dropped at close().
  void start(Handlers handlers);
  void send(Packet packet);
  // Closes the link quietly: `closed` is not called.
  void close();
  [[nodiscard]] bool is_open() const noexcept { return stream_.is_open(); }

 private:
  PacketLink(const asio::any_io_executor& executor, int socket, std::size_t max_bytes);
  void await_readable();
  void read_all();
  void await_writable();
  void write_queued();
  void fail(Error error);
  Result<std::size_t> read_one(Packet& packet);  // 0: would block
  Result<bool> write_one(const Packet& packet);  // false: would block

  asio::posix::stream_descriptor stream_;
  std::vector<std::byte> buffer_;
  std::deque<Packet> queue_;
  std::size_t queued_bytes_ = 0;
  Handlers handlers_;
  bool waiting_to_write_ = false;
};

}  // namespace ckpt::agent
