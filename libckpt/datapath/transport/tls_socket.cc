// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/tls_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace ckpt::transport {
namespace {

constexpr std::string_view kScheme = "tls:";
constexpr int kBacklog = 64;
constexpr int kKeepIdleSeconds = 15;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepProbes = 6;
// Data that nobody acknowledges, or that a peer which stands still does not take.
constexpr unsigned kUserTimeoutMs = 60'000;
// Within a machine there is no delay to cover, and what waits in a larger buffer leaves the caches (measured).
// Elsewhere the kernel's own sizing knows the path better.
constexpr int kSameHostBuffer = 1 << 20;

sockaddr_in& v4(TlsAddress& address) {
  return *reinterpret_cast<sockaddr_in*>(&address.storage);
}
sockaddr_in6& v6(TlsAddress& address) {
  return *reinterpret_cast<sockaddr_in6*>(&address.storage);
}

bool stands_for_an_interface(TlsAddress& address) {
  if (address.family() == AF_INET)
    return v4(address).sin_addr.s_addr != INADDR_ANY && !IN_MULTICAST(ntohl(v4(address).sin_addr.s_addr)) &&
           v4(address).sin_addr.s_addr != INADDR_BROADCAST;
  const in6_addr& ip = v6(address).sin6_addr;
  return !IN6_IS_ADDR_UNSPECIFIED(&ip) && !IN6_IS_ADDR_MULTICAST(&ip) && !IN6_IS_ADDR_V4MAPPED(&ip) &&
         !IN6_IS_ADDR_V4COMPAT(&ip);
}

std::string ip_text(const TlsAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* ip =
      address.family() == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  ::inet_ntop(address.family(), ip, text, sizeof text);
  return text;
}

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
    return Error::from_errno("Setting up a lane's socket");
  return ok();
}

Result<UniqueFd> make_socket(int family) {
  UniqueFd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return Error::from_errno("Making a lane's socket");
  return made;
}

}  // namespace

std::string format_tls_address(const TlsAddress& address) {
  const bool is_v4 = address.family() == AF_INET;
  const in_port_t port = is_v4 ? reinterpret_cast<const sockaddr_in*>(address.get())->sin_port
                               : reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port;
  const std::string ip = ip_text(address);
  return std::string(kScheme) + (is_v4 ? ip : "[" + ip + "]") + ":" + std::to_string(ntohs(port));
}

Result<TlsAddress> parse_tls_ip(const std::string& ip) {
  TlsAddress address;
  if (ip.find('\0') != std::string::npos)
    return Error(ErrorCode::kInvalidArgument, "An IP address has no zero byte");
  if (::inet_pton(AF_INET, ip.c_str(), &v4(address).sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, ip.c_str(), &v6(address).sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  }
  if (address.length == 0 || !stands_for_an_interface(address))
    return Error(ErrorCode::kInvalidArgument, "Not the IP address of an interface: " + ip);
  return address;
}

Result<TlsAddress> parse_tls_address(const std::string& text) {
  const Error bad(ErrorCode::kInvalidArgument, "Not the address of a TLS lane");
  const std::size_t colon = text.rfind(':');
  if (text.size() > 256 || !text.starts_with(kScheme) || colon < kScheme.size()) return bad;
  std::string ip = text.substr(kScheme.size(), colon - kScheme.size());
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  auto parsed = parse_tls_ip(ip);
  if (!parsed.has_value()) return bad;
  TlsAddress address = parsed.assume_value();
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data() + colon + 1, end, port);
  if (number.ec != std::errc() || number.ptr != end || port == 0) return bad;
  (address.family() == AF_INET ? v4(address).sin_port : v6(address).sin6_port) = htons(port);
  if (format_tls_address(address) != text) return bad;  // another form of the same address
  return address;
}

Result<UniqueFd> listen_tls(const TlsAddress& local) {
  CKPT_TRY(listener, make_socket(local.family()));
  if (::bind(listener.get(), local.get(), local.length) != 0 || ::listen(listener.get(), kBacklog) != 0)
    return Error::from_errno("Listening on " + format_tls_address(local));
  return std::move(listener);
}

Result<TlsAddress> local_address_of(int socket) {
  TlsAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return Error::from_errno("Asking for a socket's address");
  return address;
}

Result<UniqueFd> dial_tls(const TlsAddress& local, const TlsAddress& address) {
  if (local.family() != address.family())
    return Error(ErrorCode::kInvalidArgument, "The lane's address is not of the family of this side's");
  CKPT_TRY(socket, make_socket(local.family()));
  CKPT_TRYV(set_up(socket.get(), ip_text(local) == ip_text(address)));
  // The port is chosen with the connection, of which there may be many with one address.
  if (!set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1) ||
      ::bind(socket.get(), local.get(), local.length) != 0)
    return Error::from_errno("Dialing from " + ip_text(local));
  (void)::connect(socket.get(), address.get(), address.length);
  return std::move(socket);
}

Result<void> set_up_tls_socket(int socket) {
  CKPT_TRY(local, local_address_of(socket));
  TlsAddress peer;
  peer.length = sizeof peer.storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0)
    return Error::from_errno("Asking for a peer's address");
  return set_up(socket, ip_text(local) == ip_text(peer));
}

}  // namespace ckpt::transport
