// SPDX-License-Identifier: Apache-2.0
// Packets with descriptors over a connected SOCK_SEQPACKET socket, on the event loop. Keeper links and mover
// links are based on this class. Sending never blocks. Packets that do not fit into the peer's buffer wait
// here in order, up to 64 MiB.
// Threads: the event loop only. Ownership: the link owns the socket, and owns descriptors until it passes
// them on. Errors: `closed` is called once, on the loop, and never from inside send() or close().
// kUnavailable means that the peer has disconnected. kProtocol means that a packet exceeds the limit.
// kOutOfMemory means that too many bytes wait for the peer.
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

  // Takes a connected socket. `max_bytes` limits the size of a received packet.
  static Result<std::shared_ptr<PacketLink>> create(const asio::any_io_executor& executor, UniqueFd socket,
                                                    std::size_t max_bytes);
  PacketLink(const PacketLink&) = delete;
  PacketLink& operator=(const PacketLink&) = delete;

  // Starts to read. The handlers are dropped at close().
  void start(Handlers handlers);
  void send(Packet packet);
  // Closes the link without a call of `closed`.
  void close();
  [[nodiscard]] bool is_open() const noexcept { return stream_.is_open(); }

 private:
  PacketLink(const asio::any_io_executor& executor, int socket, std::size_t max_bytes);
  void await_readable();
  void read_all();
  void await_writable();
  void write_queued();
  void fail(Error error);
  Result<std::size_t> read_one(Packet& packet);  // returns 0 if the call would block
  Result<bool> write_one(const Packet& packet);  // returns false if the call would block

  asio::posix::stream_descriptor stream_;
  std::vector<std::byte> buffer_;
  std::deque<Packet> queue_;
  std::size_t queued_bytes_ = 0;
  Handlers handlers_;
  bool waiting_to_write_ = false;
};

}  // namespace ckpt::agent
