// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/frame_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::uint32_t kMagic = 0x46565047;  // the magic of a message: the bytes "GPVF"
// The time limit for the rest of a message, and for the other side to accept one. A peer that hangs for this
// long counts as disconnected. Spilling and syncing happen before an answer's first byte.
constexpr int kSilenceSeconds = 30;
constexpr FrameStream::Wait kSilence{kSilenceSeconds * 1000};
constexpr std::size_t kIdentityBytes = 16;
constexpr std::size_t kMinSecretBytes = 16;
constexpr int kBacklog = 64;

struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Head) == 16);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

Result<SocketAddress> parse(const std::string& text) {
  const Error malformed(ErrorCode::kInvalidArgument,
                        "\"" + text + "\" is not an address: write IP:PORT or localhost:PORT");
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

// Enables keepalive. Without it, a machine that lost power holds a connection, and so a checkpoint store's
// lock, for hours.
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
}

// Waits for the events. Returns false if the time has passed.
Result<bool> wait_for(int socket, short events, FrameStream::Wait wait) {
  pollfd item{socket, events, 0};
  int ready;
  do {
    ready = ::poll(&item, 1, static_cast<int>(wait.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Error::from_errno("Cannot wait for a connection");
  return ready > 0;
}

Result<UniqueFd> connect_to(const std::string& address, FrameStream::Wait timeout) {
  CKPT_TRY(where, parse(address));
  UniqueFd socket(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Error::from_errno("Cannot create a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.bytes) != 0) {
    if (errno != EINPROGRESS) return gone("Cannot reach " + address).caused_by(Error::from_errno("connect"));
    CKPT_TRY(ready, wait_for(socket.get(), POLLOUT, timeout));
    int failure = ETIMEDOUT;
    socklen_t length = sizeof failure;
    if (ready) (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure != 0) return gone("Cannot reach " + address).caused_by(Error::from_errno(failure, "connect"));
  }
  watch_over(socket.get());
  return socket;
}

using Clock = std::chrono::steady_clock;

// Returns the time left until `end`, or 0 after it.
FrameStream::Wait until(Clock::time_point end) {
  return std::max(FrameStream::Wait(0), std::chrono::ceil<FrameStream::Wait>(end - Clock::now()));
}

}  // namespace

Result<FrameKey> frame_key_of(std::span<const std::byte> secret) {
  if (secret.size() < kMinSecretBytes)
    return Error(ErrorCode::kInvalidArgument, "The token for another node's checkpoint store is too short");
  FrameKey made;
  // Both sides must derive the same key, so these labels are part of the protocol.
  CKPT_TRY(key, tls::derive_psk(secret, "gpumigrate vault psk 1"));
  CKPT_TRY(name, tls::derive_psk(secret, "gpumigrate vault id 1"));
  made.key = key;
  constexpr const char* kDigits = "0123456789abcdef";
  for (const unsigned char byte : name.bytes().first<kIdentityBytes>())
    made.identity += {kDigits[byte >> 4], kDigits[byte & 15]};
  return made;
}

Result<FrameStream> FrameStream::connect(const std::string& address, const FrameKey& key, Wait timeout) {
  const auto end = Clock::now() + timeout;
  CKPT_TRY(context, tls::PskContext::create());
  CKPT_TRY(socket, connect_to(address, timeout));
  CKPT_TRY(tls, tls::PskStream::client(std::move(context), std::move(socket), key.identity, key.key));
  FrameStream stream(std::move(tls));
  CKPT_TRYV(stream.handshake(until(end)));
  return stream;
}

Result<FrameStream> FrameStream::accepted(std::shared_ptr<const tls::PskContext> context, UniqueFd socket,
                                          tls::FindPsk find) {
  CKPT_TRY(tls, tls::PskStream::server(std::move(context), std::move(socket), std::move(find)));
  return FrameStream(std::move(tls));
}

Result<void> FrameStream::handshake(Wait timeout) {
  const auto end = Clock::now() + timeout;
  while (true) {
    CKPT_TRY(done, tls_->handshake());
    if (done) break;
    CKPT_TRY(ready, wait_for(tls_->fd(), tls_->events(), until(end)));
    if (!ready) return Error(ErrorCode::kTimedOut, "The TLS handshake took too long");
  }
  tls_->widen();
  return ok();
}

Result<void> FrameStream::send(std::span<const std::byte> head, std::span<const std::byte> payload) {
  if (head.size() > kMaxHeadBytes || payload.size() > kMaxPayloadBytes)
    return Error(ErrorCode::kInvalidArgument, "A message about files of a checkpoint store is too long");
  Head front;
  front.head_bytes = static_cast<std::uint32_t>(head.size());
  front.payload_bytes = static_cast<std::uint32_t>(payload.size());
  CKPT_TRYV(write_all(std::as_bytes(std::span(&front, 1))));
  CKPT_TRYV(write_all(head));
  CKPT_TRYV(write_all(payload));
  while (true) {
    CKPT_TRY(sent, tls_->flush());
    if (sent) return ok();
    CKPT_TRY(ready, wait_for(tls_->fd(), tls_->events(), kSilence));
    if (!ready) return gone("The other side does not receive data");
  }
}

Result<void> FrameStream::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CKPT_TRY(written, tls_->write(bytes.first(std::min(bytes.size(), tls::PskStream::kRecordBytes))));
    bytes = bytes.subspan(written);
    if (written > 0) continue;
    CKPT_TRY(sent, tls_->flush());
    if (sent) continue;
    CKPT_TRY(ready, wait_for(tls_->fd(), tls_->events(), kSilence));
    if (!ready) return gone("The other side does not receive data");
  }
  return ok();
}

Result<std::size_t> FrameStream::read_some(std::span<std::byte> out, Wait wait) {
  const auto end = Clock::now() + wait;
  while (true) {
    CKPT_TRY(got, tls_->read(out));
    if (got > 0) return got;
    CKPT_TRY(ready, wait_for(tls_->fd(), tls_->events(), wait == kForever ? kForever : until(end)));
    if (!ready)
      return Error(ErrorCode::kTimedOut, "No data arrived for " + std::to_string(wait.count()) + " ms");
  }
}

Result<void> FrameStream::read_all(std::span<std::byte> out) {
  while (!out.empty()) {
    auto got = read_some(out, kSilence);
    if (!got && got.error().code() == ErrorCode::kTimedOut)
      return Error(ErrorCode::kTimedOut, "The other side stopped in the middle of a message");
    if (!got) return std::move(got).error();
    out = out.subspan(*got);
  }
  return ok();
}

Result<FrameStream::Received> FrameStream::receive(Wait wait, std::size_t max_head_bytes,
                                                   std::span<std::byte> buffer) {
  Head front;
  const auto bytes = std::as_writable_bytes(std::span(&front, 1));
  auto first = read_some(bytes, wait);
  if (!first && first.error().code() == ErrorCode::kTimedOut)
    return Error(ErrorCode::kTimedOut,
                 "The other side did not answer within " + std::to_string(wait.count()) + " ms");
  if (!first) return std::move(first).error();
  CKPT_TRYV(read_all(bytes.subspan(*first)));
  if (front.magic != kMagic || front.zero != 0)
    return Error(ErrorCode::kProtocol,
                 "The other side sent bytes that are not a message about files of a checkpoint store");
  if (front.head_bytes > max_head_bytes || front.payload_bytes > buffer.size())
    return Error(ErrorCode::kProtocol, "A message of " + std::to_string(front.head_bytes) + " and " +
                                           std::to_string(front.payload_bytes) +
                                           " bytes is too long for the buffer");
  Received received;
  received.head.resize(front.head_bytes);
  received.payload_bytes = front.payload_bytes;
  CKPT_TRYV(read_all(received.head));
  CKPT_TRYV(read_all(buffer.first(received.payload_bytes)));
  return received;
}

void FrameStream::shut_down() noexcept {
  if (tls_) (void)::shutdown(tls_->fd(), SHUT_RDWR);
}

Result<ListeningSocket> listen_at(const std::string& address) {
  CKPT_TRY(where, parse(address));
  ListeningSocket listening;
  listening.socket.reset(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.socket) return Error::from_errno("Cannot create a socket");
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

Result<UniqueFd> accept_from(const UniqueFd& listening, FrameStream::Wait wait) {
  CKPT_TRY(ready, wait_for(listening.get(), POLLIN, wait));
  const Error nobody(ErrorCode::kTimedOut, "No connection arrived in time");
  if (!ready) return nobody;
  UniqueFd socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    const bool passing = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
    return passing ? nobody : Error::from_errno("Cannot accept a connection");
  }
  watch_over(socket.get());
  return socket;
}

}  // namespace ckpt::checkpoint_store
