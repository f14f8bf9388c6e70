// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/tls_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <string_view>

namespace ckpt::transport {
namespace {

constexpr std::string_view kScheme = "tls:";
constexpr int kBacklog = 64;
constexpr int kKeepIdleSeconds = 5;
constexpr int kKeepIntervalSeconds = 3;
constexpr int kKeepProbes = 3;
// The timeout for data that the peer does not acknowledge, or that a stopped peer does not accept. A paused
// job may be waiting.
constexpr unsigned kUserTimeoutMs = 15'000;
// The buffer size within a machine. There is no delay to cover there, and data that waits in a larger buffer
// leaves the CPU caches (measured). Between machines the kernel's own sizing is better.
constexpr int kSameHostBuffer = 1 << 20;

template <class Value>
bool set(int socket, int level, int name, Value value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

Result<void> set_up(int socket, bool within_host) {
  if (!set(socket, IPPROTO_TCP, TCP_NODELAY, 1) || !set(socket, SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds) ||
      !set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds) ||
      !set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes) ||
      !set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs) ||
      (within_host && (!set(socket, SOL_SOCKET, SO_SNDBUF, kSameHostBuffer) ||
                       !set(socket, SOL_SOCKET, SO_RCVBUF, kSameHostBuffer))))
    return Error::from_errno("Cannot set up a lane's socket");
  return ok();
}

Result<UniqueFd> make_socket(int family) {
  UniqueFd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return Error::from_errno("Cannot create a lane's socket");
  return made;
}

}  // namespace

std::string format_tls_address(const LaneAddress& address) {
  return format_address(kScheme, address);
}

Result<LaneAddress> parse_tls_address(const std::string& text) {
  return parse_address(kScheme, text);
}

Result<UniqueFd> listen_tls(const LaneAddress& local, PortRange ports) {
  for (const std::uint16_t port : ports_in_turn(ports)) {
    CKPT_TRY(listener, make_socket(local.family()));
    const LaneAddress at = with_port(local, port);
    // A port on which only connections of a former lane remain counts as free.
    if (port != 0 && !set(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1))
      return Error::from_errno("Cannot set up a lane's socket");
    if (::bind(listener.get(), at.get(), at.length) == 0 && ::listen(listener.get(), kBacklog) == 0)
      return std::move(listener);
    if (port == 0 || errno != EADDRINUSE) return Error::from_errno("Listening on " + format_tls_address(at));
  }
  return ports_taken(ports, local);
}

Result<void> check_local(const LaneAddress& local) {
  CKPT_TRY(socket, make_socket(local.family()));
  if (::bind(socket.get(), local.get(), local.length) != 0)
    return Error::from_errno("Listening on " + format_tls_address(local));
  return ok();
}

Result<LaneAddress> local_address_of(int socket) {
  LaneAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return Error::from_errno("Cannot get a socket's address");
  return address;
}

Result<UniqueFd> dial_tls(const LaneAddress& local, const LaneAddress& address) {
  if (local.family() != address.family())
    return Error(ErrorCode::kInvalidArgument,
                 "The lane's address and this side's address have different address families");
  CKPT_TRY(socket, make_socket(local.family()));
  CKPT_TRYV(set_up(socket.get(), ip_text(local) == ip_text(address)));
  // The port is chosen at connect time, because many connections may share one address.
  if (!set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1) ||
      ::bind(socket.get(), local.get(), local.length) != 0)
    return Error::from_errno("Dialing from " + ip_text(local));
  (void)::connect(socket.get(), address.get(), address.length);
  return std::move(socket);
}

Result<void> set_up_tls_socket(int socket) {
  CKPT_TRY(local, local_address_of(socket));
  LaneAddress peer;
  peer.length = sizeof peer.storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0)
    return Error::from_errno("Cannot get a peer's address");
  return set_up(socket, ip_text(local) == ip_text(peer));
}

}  // namespace ckpt::transport
