// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/connections.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/borrowed_socket.h"
#include "agent/host_process/sockets/outer_connections.h"

namespace ckpt::agent::host {
namespace {

int option(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, level, name, &value, &bytes) == 0 ? value : -1;
}

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

// Converts an IPv4 address that an IPv6 socket reports ("[::ffff:10.0.0.1]:22") to the form of an IPv4
// socket. The addresses of both ends can then be compared. Other addresses are returned unchanged.
std::string one_form(const std::string& address) {
  constexpr std::string_view kMapped = "[::ffff:";
  const std::size_t end = address.find("]:");
  if (!address.starts_with(kMapped) || address.find('.') == std::string::npos || end == std::string::npos)
    return address;
  return address.substr(kMapped.size(), end - kMapped.size()) + address.substr(end + 1);
}

}  // namespace

std::map<Inode, Connection> inner_connections(const std::map<Inode, Connection>& all,
                                              const std::map<Inode, std::string>& own) {
  std::map<std::pair<std::string, std::string>, Inode> ends;
  for (const auto& [inode, connection] : all) {
    if (own.contains(inode) && connection.established)
      ends[{one_form(connection.local), one_form(connection.remote)}] = inode;
  }
  std::map<Inode, Connection> inner;
  for (const auto& [addresses, inode] : ends) {
    if (ends.contains({addresses.second, addresses.first})) inner[inode] = all.at(inode);
  }
  return inner;
}

Result<ConnectionRepair> ConnectionRepair::before(pid_t root) {
  ConnectionRepair repair;
  CKPT_TRY(connections, tcp_connections(root));
  repair.is_recorded_ = true;
  if (connections.empty()) return repair;
  CKPT_TRYV(for_each_socket(root, [&](Inode inode, const BorrowedSocket& socket) -> Result<void> {
    if (connections.contains(inode) && socket.fd)
      repair.reuse_[inode] = option(socket.fd.get(), SOL_SOCKET, SO_REUSEADDR);
    return ok();
  }));
  return repair;
}

Result<void> ConnectionRepair::end(pid_t root, const std::map<Inode, Connection>& kept) const {
  if (is_recorded_ && reuse_.empty()) return ok();
  // All sockets are visited, because the kernel's tables do not list a connection that has failed since the
  // dump.
  return for_each_socket(root, [&](Inode inode, const BorrowedSocket& socket) -> Result<void> {
    if (kept.contains(inode) || !socket.fd) return ok();
    admit_packets(socket.fd.get());
    if (option(socket.fd.get(), IPPROTO_TCP, TCP_REPAIR) != 1) return ok();
    if (!set_option(socket.fd.get(), IPPROTO_TCP, TCP_REPAIR, 0))
      return Error::from_errno("Cannot continue the connection of " + socket.where());
    const auto before = reuse_.find(inode);
    (void)set_option(socket.fd.get(), SOL_SOCKET, SO_REUSEADDR, before == reuse_.end() ? 1 : before->second);
    return ok();
  });
}

}  // namespace ckpt::agent::host
