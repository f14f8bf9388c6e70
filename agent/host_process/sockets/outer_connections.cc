// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/outer_connections.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "agent/host_process/criu_image/ended_connections.h"
#include "agent/host_process/sockets/borrowed_socket.h"
#include "agent/host_process/sockets/connections.h"

namespace ckpt::agent::host {
namespace {

constexpr int kRepairOn = 1;
constexpr int kRepairOffInSilence = -1;  // turns off repair mode without sending a packet to the peer
constexpr in_port_t kAnyPort = 9;        // any port will do, because no packet is sent to it before the reset
constexpr std::uint32_t kOwnFilter = 0x676d6370;  // number in the filter's first instruction, by which the
                                                  // filter is recognized
// The filter that drops every packet. Its first instruction has no effect, and only contains kOwnFilter.
constexpr std::array<sock_filter, 2> kNoPackets = {
    {{BPF_LD | BPF_IMM, 0, 0, kOwnFilter}, {BPF_RET | BPF_K, 0, 0, 0}}};

bool set_value(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

int value_of(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, level, name, &value, &bytes) == 0 ? value : -1;
}

// Returns the number of instructions of the socket's filter. The result is negative for an eBPF filter, which
// the kernel does not show.
int filter_length(int socket) {
  socklen_t length = 0;
  return ::getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, nullptr, &length) == 0 ? static_cast<int>(length)
                                                                                : -1;
}

bool has_our_filter(int socket) {
  std::array<sock_filter, kNoPackets.size()> found{};
  auto length = static_cast<socklen_t>(found.size());
  return filter_length(socket) == static_cast<int>(length) &&
         ::getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, found.data(), &length) == 0 &&
         found[0].k == kOwnFilter;
}

bool disconnect(int socket) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  return ::connect(socket, &none, sizeof none) == 0;
}

bool connect_to(int socket, sockaddr_in6& address, const in6_addr& host) {
  address.sin6_addr = host;
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Connects the socket to this machine's loopback address without a packet. A node without IPv6 can still have
// an IPv6 socket for IPv4 peers.
bool connect_in_repair(int socket) {
  constexpr in6_addr kMappedLoopback = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(kAnyPort);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(kAnyPort);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (value_of(socket, SOL_SOCKET, SO_DOMAIN) == AF_INET6)
    return connect_to(socket, six, in6addr_loopback) || connect_to(socket, six, kMappedLoopback);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&four), sizeof four) == 0;
}

// Gives an unconnected socket the error of a reset. The kernel sets this error only for a socket that was
// connected, so the function connects and disconnects the socket.
Result<void> report_reset(const BorrowedSocket& socket) {
  const int fd = socket.fd.get();
  const auto failed = [&socket] {
    return Error::from_errno("Cannot report the reset connection of " + socket.where());
  };
  const int reuse = value_of(fd, SOL_SOCKET, SO_REUSEADDR);  // repair mode changes this option
  (void)set_value(fd, SOL_SOCKET, SO_MARK, 0);
  if (!set_value(fd, IPPROTO_TCP, TCP_REPAIR, kRepairOn)) return failed();
  const bool is_connected = connect_in_repair(fd);
  const int reason = errno;
  const bool is_repaired = set_value(fd, IPPROTO_TCP, TCP_REPAIR, kRepairOffInSilence);
  (void)set_value(fd, SOL_SOCKET, SO_REUSEADDR, reuse > 0 ? 1 : 0);
  if (!is_connected) errno = reason;
  if (!is_connected || !is_repaired || !disconnect(fd)) return failed();
  (void)::shutdown(fd, SHUT_RDWR);  // the kernel records the shutdown, although the call returns ENOTCONN
  return ok();
}

}  // namespace

Result<TreeConnections> connections_of(pid_t root) {
  std::map<Inode, std::string> own;
  CKPT_TRY(all, tcp_connections(root));
  TreeConnections found;
  if (all.empty()) return found;
  CKPT_TRYV(for_each_socket(root, [&own](Inode inode, const BorrowedSocket& socket) -> Result<void> {
    own[inode] = socket.where();
    return ok();
  }));
  found.inner = inner_connections(all, own);
  for (const auto& [inode, connection] : all) {
    if (own.contains(inode) && !found.inner.contains(inode)) found.outer[inode] = connection;
  }
  return found;
}

Result<void> hold_packets(pid_t root, const std::map<Inode, Connection>& outer) {
  if (outer.empty()) return ok();
  return for_each_socket(root, [&outer](Inode inode, const BorrowedSocket& socket) -> Result<void> {
    if (!outer.contains(inode) || !socket.fd || filter_length(socket.fd.get()) != 0) return ok();
    auto instructions = kNoPackets;
    const sock_fprog program = {static_cast<unsigned short>(instructions.size()), instructions.data()};
    if (::setsockopt(socket.fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
      return Error::from_errno("Cannot hold back the packets of " + socket.where());
    return ok();
  });
}

void admit_packets(int socket) {
  if (has_our_filter(socket)) (void)set_value(socket, SOL_SOCKET, SO_DETACH_FILTER, 0);
}

Result<void> reset_outer(pid_t root) {
  CKPT_TRY(connections, connections_of(root));
  if (connections.outer.empty()) return ok();
  return for_each_socket(root, [&connections](Inode inode, const BorrowedSocket& socket) -> Result<void> {
    if (!connections.outer.contains(inode) || !socket.fd) return ok();
    const int fd = socket.fd.get();
    if (value_of(fd, IPPROTO_TCP, TCP_REPAIR) == kRepairOn)
      (void)set_value(fd, IPPROTO_TCP, TCP_REPAIR, kRepairOffInSilence);
    const linger at_once = {1, 0};  // the kernel sends a reset, at the latest when the process exits
    (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    (void)disconnect(fd);
    return ok();
  });
}

Result<void> report_resets(pid_t root) {
  Result<void> first = ok();
  CKPT_TRYV(for_each_socket(root, [&first](Inode, const BorrowedSocket& socket) -> Result<void> {
    const bool has_ended = socket.fd && value_of(socket.fd.get(), SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP &&
                           value_of(socket.fd.get(), SOL_SOCKET, SO_MARK) == static_cast<int>(kEndedMark);
    if (!has_ended) return ok();
    auto reported = report_reset(socket);
    if (first) first = std::move(reported);
    return ok();
  }));
  return first;
}

}  // namespace ckpt::agent::host
