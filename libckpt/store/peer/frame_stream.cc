// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/frame_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "libckpt/store/vault/format.h"

namespace ckpt::vault {
namespace {

constexpr std::uint32_t kMagic = 0x46565047;  // "GPVF"
// Within a message, and until the other side has taken one: what hangs that long is gone. Spilling and
// syncing lie before an answer's first byte.
constexpr int kSilenceSeconds = 30;
constexpr int kBacklog = 64;

struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t head_hash = 0;
  std::uint64_t payload_hash = 0;
};
static_assert(sizeof(Head) == 32);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

Result<SocketAddress> parse(const std::string& text) {
  const Error malformed(ErrorCode::kInvalidArgument,
                        "\"" + text + "\" is no address: IP:PORT or localhost:PORT is one");
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return malformed;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data() + colon + 1, end, port);
  if (failure != std::errc{} || rest != end) return malformed;
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.bytes = sizeof *v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.bytes = sizeof *v6;
  } else {
    return malformed;
  }
  return address;
}

Error gone(const std::string& what) {
  return {ErrorCode::kUnavailable, what};
}

// Without these a machine that lost its power holds a connection, and with it a vault's lock, for hours.
void watch_over(int socket) {
  const auto set = [socket](int level, int name, int value) {
    (void)::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceSeconds * 1000);
  const timeval silence{kSilenceSeconds, 0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
  (void)::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

// False: the time is over.
Result<bool> wait_for(int socket, short events, FrameStream::Wait wait) {
  pollfd item{socket, events, 0};
  int ready;
  do {
    ready = ::poll(&item, 1, static_cast<int>(wait.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Error::from_errno("Waiting for a connection");
  return ready > 0;
}

}  // namespace

Result<FrameStream> FrameStream::connect(const std::string& address, Wait timeout) {
  CKPT_TRY(where, parse(address));
  UniqueFd socket(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Error::from_errno("Cannot make a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.bytes) != 0) {
    if (errno != EINPROGRESS) return gone("Cannot reach " + address).caused_by(Error::from_errno("connect"));
    CKPT_TRY(ready, wait_for(socket.get(), POLLOUT, timeout));
    int failure = ETIMEDOUT;
    socklen_t length = sizeof failure;
    if (ready) (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure != 0) return gone("Cannot reach " + address).caused_by(Error::from_errno(failure, "connect"));
  }
  // Blocking from here on, within the bounds that watch_over() sets.
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0)
    return Error::from_errno("Cannot set up a socket");
  watch_over(socket.get());
  return FrameStream(std::move(socket));
}

Result<void> FrameStream::send(std::span<const std::byte> head, std::span<const std::byte> payload) {
  if (head.size() > kMaxHeadBytes || payload.size() > kMaxPayloadBytes)
    return Error(ErrorCode::kInvalidArgument, "A message of a vault's files that is too long");
  Head front;
  front.head_bytes = static_cast<std::uint32_t>(head.size());
  front.payload_bytes = static_cast<std::uint32_t>(payload.size());
  front.head_hash = checksum(head);
  front.payload_hash = checksum(payload);
  iovec parts[] = {{&front, sizeof front},
                   {const_cast<std::byte*>(head.data()), head.size()},
                   {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  while (message.msg_iovlen > 0) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return gone("The other side takes nothing").caused_by(Error::from_errno("sendmsg"));
    auto left = static_cast<std::size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) break;
    message.msg_iov->iov_base = static_cast<std::byte*>(message.msg_iov->iov_base) + left;
    message.msg_iov->iov_len -= left;
  }
  return ok();
}

Result<void> FrameStream::read_all(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::recv(socket_.get(), out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Error(ErrorCode::kTimedOut, "The other side stopped in the middle of a message");
    if (got < 0) return gone("The connection broke").caused_by(Error::from_errno("recv"));
    if (got == 0) return gone("The other side has closed the connection");
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return ok();
}

Result<FrameStream::Received> FrameStream::receive(Wait wait, std::size_t max_head_bytes,
                                                   std::span<std::byte> buffer) {
  CKPT_TRY(ready, wait_for(socket_.get(), POLLIN, wait));
  if (!ready)
    return Error(ErrorCode::kTimedOut,
                 "The other side did not answer within " + std::to_string(wait.count()) + " ms");
  Head front;
  CKPT_TRYV(read_all(std::as_writable_bytes(std::span(&front, 1))));
  if (front.magic != kMagic || front.zero != 0)
    return Error(ErrorCode::kProtocol, "What came is no message of a vault's files");
  if (front.head_bytes > max_head_bytes || front.payload_bytes > buffer.size())
    return Error(ErrorCode::kProtocol, "A message of " + std::to_string(front.head_bytes) + " and " +
                                           std::to_string(front.payload_bytes) +
                                           " bytes is longer than there is room for");
  Received received;
  received.head.resize(front.head_bytes);
  received.payload_bytes = front.payload_bytes;
  CKPT_TRYV(read_all(received.head));
  const auto payload = buffer.first(received.payload_bytes);
  CKPT_TRYV(read_all(payload));
  if (checksum(received.head) != front.head_hash || checksum(payload) != front.payload_hash)
    return Error(ErrorCode::kProtocol, "A message of a vault's files was damaged on its way");
  return received;
}

void FrameStream::shut_down() noexcept {
  if (socket_) (void)::shutdown(socket_.get(), SHUT_RDWR);
}

Result<ListeningSocket> listen_at(const std::string& address) {
  CKPT_TRY(where, parse(address));
  ListeningSocket listening;
  listening.socket.reset(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.socket) return Error::from_errno("Cannot make a socket");
  const int yes = 1;
  (void)::setsockopt(listening.socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  auto* raw = reinterpret_cast<sockaddr*>(&where.storage);
  if (::bind(listening.socket.get(), raw, where.bytes) != 0 ||
      ::listen(listening.socket.get(), kBacklog) != 0 ||
      ::getsockname(listening.socket.get(), raw, &where.bytes) != 0)
    return Error::from_errno("Cannot listen at " + address);
  const bool v6 = where.storage.ss_family == AF_INET6;
  const std::uint16_t port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(raw)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(raw)->sin_port);
  listening.address = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
  return listening;
}

Result<FrameStream> accept_from(const UniqueFd& listening, FrameStream::Wait wait) {
  CKPT_TRY(ready, wait_for(listening.get(), POLLIN, wait));
  const Error nobody(ErrorCode::kTimedOut, "Nobody came");
  if (!ready) return nobody;
  UniqueFd socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) {
    const bool passing = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
    return passing ? nobody : Error::from_errno("Cannot take a connection");
  }
  watch_over(socket.get());
  return FrameStream(std::move(socket));
}

}  // namespace ckpt::vault
