// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/socket_kinds.h"

#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <sstream>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxNetlinkTable = 64u << 20;
constexpr std::size_t kGroupWords = 64;
constexpr int kNetlinkOptions = 270;  // value of SOL_NETLINK
constexpr const char* kCloseSocket = ": let the program close it before the move";

std::optional<int> socket_option(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  if (::getsockopt(socket, level, name, &value, &bytes) != 0) return std::nullopt;
  return value;
}

std::string name_of_family(int family) {
  struct Name {
    int family;
    const char* name;
  };
  static constexpr std::array<Name, 12> kNames = {{{AF_PACKET, "AF_PACKET"},
                                                   {AF_VSOCK, "AF_VSOCK"},
                                                   {AF_ALG, "AF_ALG"},
                                                   {AF_XDP, "AF_XDP"},
                                                   {AF_KEY, "AF_KEY"},
                                                   {AF_CAN, "AF_CAN"},
                                                   {AF_BLUETOOTH, "AF_BLUETOOTH"},
                                                   {AF_TIPC, "AF_TIPC"},
                                                   {AF_RDS, "AF_RDS"},
                                                   {AF_SMC, "AF_SMC"},
                                                   {AF_KCM, "AF_KCM"},
                                                   {AF_QIPCRTR, "AF_QIPCRTR"}}};
  const auto* const known = std::find_if(kNames.begin(), kNames.end(),
                                         [family](const Name& name) { return name.family == family; });
  return known != kNames.end() ? known->name : "family " + std::to_string(family);
}

std::string socket_not_saved(const std::string& what) {
  return "is a socket of " + what + ", which cannot be restored" + kCloseSocket;
}

// Returns the reason why CRIU cannot save an Internet socket. CRIU reports "Unsupported proto" or "Can't dump
// corked dgram socket".
std::string why_not_internet(int socket, int type, int protocol) {
  if (type == SOCK_RAW || (type == SOCK_STREAM && protocol == IPPROTO_TCP)) return {};
  const bool is_datagram = type == SOCK_DGRAM && (protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE);
  if (!is_datagram) {
    const bool multipath = protocol == 262;  // value of IPPROTO_MPTCP
    return socket_not_saved(multipath ? "Multipath TCP" : "IP protocol " + std::to_string(protocol));
  }
  if (socket_option(socket, protocol, UDP_CORK).value_or(0) == 0) return {};
  return "is a corked UDP socket (UDP_CORK), which CRIU cannot save: let the program send its queued data";
}

// Returns the reason why CRIU cannot save a netlink socket. CRIU knows the first 32 groups only.
std::string why_not_netlink(int socket) {
  std::array<std::uint32_t, kGroupWords> groups{};
  socklen_t bytes = sizeof groups;
  if (::getsockopt(socket, kNetlinkOptions, NETLINK_LIST_MEMBERSHIPS, groups.data(), &bytes) != 0) return {};
  if (std::all_of(groups.begin() + 1, groups.end(), [](std::uint32_t word) { return word == 0; })) return {};
  return std::string("is a netlink socket in a group above 32, which CRIU cannot save") + kCloseSocket;
}

}  // namespace

// Returns the netlink sockets with unread messages. CRIU reports "The socket has data to read".
std::map<Inode, std::string> unread_netlink(pid_t pid) {
  std::map<Inode, std::string> unread;
  const Result<std::string> table = read_file(proc_path(pid, "/net/netlink"), kMaxNetlinkTable);
  if (!table.has_value()) return unread;
  std::istringstream lines(*table);
  std::string line;
  std::getline(lines, line);  // skips the table's heading
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string address, port, groups;
    long protocol = 0, received = 0, sent = 0, dumps = 0, locks = 0, drops = 0;
    Inode inode = 0;
    if (!(words >> address >> protocol >> port >> groups >> received >> sent >> dumps >> locks >> drops >>
          inode))
      continue;
    if (received > 0 || dumps > 0)
      unread[inode] =
          "is a netlink socket with unread messages, which CRIU cannot save: let the program read them";
  }
  return unread;
}

std::string why_not_socket(int socket) {
  const auto family = socket_option(socket, SOL_SOCKET, SO_DOMAIN);
  const auto type = socket_option(socket, SOL_SOCKET, SO_TYPE);
  if (!family || !type) return {};
  switch (*family) {
    case AF_UNIX:
      return {};
    case AF_NETLINK:
      return why_not_netlink(socket);
    case AF_INET:
    case AF_INET6:
      return why_not_internet(socket, *type, socket_option(socket, SOL_SOCKET, SO_PROTOCOL).value_or(0));
    default:
      return socket_not_saved(name_of_family(*family));
  }
}

}  // namespace ckpt::agent::host
