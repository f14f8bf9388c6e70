// SPDX-License-Identifier: Apache-2.0
#include "agent/io/packet_link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxDescriptors = 64;
// The maximum number of bytes that wait for a peer. A busy peer may be slow, but a peer above the limit has
// stopped reading, and its link is closed.
constexpr std::size_t kMaxQueuedBytes = std::size_t{64} << 20;
constexpr std::size_t kPacketCost = 256;  // memory that a small packet occupies in the queue

std::size_t cost_of(const Packet& packet) {
  return kPacketCost + packet.bytes.size();
}

}  // namespace

PacketLink::PacketLink(const asio::any_io_executor& executor, int socket, std::size_t max_bytes)
    : stream_(executor, socket), buffer_(max_bytes) {}

Result<std::shared_ptr<PacketLink>> PacketLink::create(const asio::any_io_executor& executor, UniqueFd socket,
                                                       std::size_t max_bytes) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    return Error::from_errno("Cannot make a local socket non-blocking");
  }
  return std::shared_ptr<PacketLink>(new PacketLink(executor, socket.release(), max_bytes));
}

void PacketLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  await_readable();
}

void PacketLink::await_readable() {
  stream_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](boost::system::error_code error) {
                       if (!error && self->stream_.is_open()) self->read_all();
                     });
}

void PacketLink::read_all() {
  for (;;) {
    Packet packet;
    auto bytes = read_one(packet);
    if (!bytes) return fail(std::move(bytes).error());
    if (*bytes == 0) break;
    auto handler = handlers_.packet;  // copied, because the handler may close this link
    if (handler) handler(std::move(packet));
    if (!stream_.is_open()) return;
  }
  await_readable();
}

Result<std::size_t> PacketLink::read_one(Packet& packet) {
  iovec vector{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control;
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got;
  do {
    // ECONNRESET means that the peer closed its end or exited before it had read all packets. The kernel
    // reports this error once, before the peer's last messages.
    got = ::recvmsg(stream_.native_handle(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    return Error::from_errno("Cannot receive from a local socket");
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  if (got == 0) return Error(ErrorCode::kUnavailable, "The peer has closed the local connection");
  if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    return Error(ErrorCode::kProtocol, "A local packet exceeds the limit of " +
                                           std::to_string(buffer_.size()) + " bytes or " +
                                           std::to_string(kMaxDescriptors) + " descriptors");
  }
  packet.bytes.assign(buffer_.begin(), buffer_.begin() + got);
  return static_cast<std::size_t>(got);
}

Result<bool> PacketLink::write_one(const Packet& packet) {
  iovec vector{const_cast<std::byte*>(packet.bytes.data()), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  if (!packet.descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * packet.descriptors.size());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * packet.descriptors.size());
    for (std::size_t i = 0; i < packet.descriptors.size(); ++i) {
      const int fd = packet.descriptors[i].get();
      std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(stream_.native_handle(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  // The peer has disconnected. Its last packets may still be unread, so the reading side reports the
  // disconnect after them.
  if (errno == EPIPE || errno == ECONNRESET) return true;
  return Error::from_errno("Cannot send on a local socket");
}

void PacketLink::send(Packet packet) {
  if (!stream_.is_open()) return;
  const bool has_too_many = packet.descriptors.size() > kMaxDescriptors;
  if (has_too_many || queued_bytes_ + cost_of(packet) > kMaxQueuedBytes) {
    Error reason(ErrorCode::kOutOfMemory,
                 has_too_many
                     ? "A local packet has more than " + std::to_string(kMaxDescriptors) + " descriptors"
                     : "The peer does not read its local socket: " + std::to_string(queue_.size()) +
                           " packets are queued");
    asio::post(stream_.get_executor(), [self = shared_from_this(), reason = std::move(reason)]() mutable {
      self->fail(std::move(reason));
    });
    return;
  }
  queued_bytes_ += cost_of(packet);
  queue_.push_back(std::move(packet));
  if (!waiting_to_write_) write_queued();
}

void PacketLink::write_queued() {
  while (!queue_.empty()) {
    auto sent = write_one(queue_.front());
    if (!sent) {
      asio::post(stream_.get_executor(), [self = shared_from_this(), error = sent.error()]() mutable {
        self->fail(std::move(error));
      });
      return;
    }
    if (!*sent) return await_writable();
    queued_bytes_ -= cost_of(queue_.front());
    queue_.pop_front();
  }
}

void PacketLink::await_writable() {
  waiting_to_write_ = true;
  stream_.async_wait(asio::posix::stream_descriptor::wait_write,
                     [self = shared_from_this()](boost::system::error_code error) {
                       self->waiting_to_write_ = false;
                       if (!error && self->stream_.is_open()) self->write_queued();
                     });
}

void PacketLink::fail(Error error) {
  if (!stream_.is_open()) return;
  auto handler = std::move(handlers_.closed);
  close();
  if (handler) handler(std::move(error));
}

void PacketLink::close() {
  boost::system::error_code ignored;
  stream_.close(ignored);
  queue_.clear();
  queued_bytes_ = 0;
  // The handlers own their user, which may own this link. They are destroyed later, because one of them may
  // be running now.
  asio::post(stream_.get_executor(), [handlers = std::move(handlers_)] {});
  handlers_ = Handlers{};
}

}  // namespace ckpt::agent
