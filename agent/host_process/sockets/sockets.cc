// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/sockets.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/address.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxTableBytes = 64u << 20;
constexpr unsigned kEstablished = 0x01;
constexpr unsigned kListen = 0x0A;
constexpr unsigned kClosed = 0x07;

// Parses an address such as "0100007F:1F90" of /proc/net/tcp, or 32 digits of tcp6. The digits are words in
// the machine's byte order.
std::string address_text(const std::string& field) {
  const std::size_t colon = field.find(':');
  if (colon != 8 && colon != 32) return field;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    const char* at = field.data() + i * 8;
    std::from_chars(at, at + 8, words[i], 16);
  }
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(colon == 8 ? AF_INET : AF_INET6, words.data(), text, sizeof text);
  const unsigned long port = std::strtoul(field.c_str() + colon + 1, nullptr, 16);
  return colon == 8 ? text + (":" + std::to_string(port))
                    : "[" + std::string(text) + "]:" + std::to_string(port);
}

using VisitSocket = std::function<void(Inode inode, unsigned long state, const std::string& local,
                                       const std::string& remote)>;

void read_table(const std::string& text, const VisitSocket& visit) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // skips the table's heading
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout;
    Inode inode = 0;
    if (!(words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
          inode))
      continue;
    if (inode != 0)
      visit(inode, std::strtoul(state.c_str(), nullptr, 16), address_text(local), address_text(remote));
  }
}

Result<void> read_tables(pid_t pid, std::initializer_list<const char*> tables, const VisitSocket& visit) {
  for (const char* table : tables) {
    const std::string path = "/proc/" + std::to_string(pid) + "/net/" + table;
    if (::access(path.c_str(), R_OK) != 0) continue;  // a kernel without IPv6 has no such file
    CKPT_TRY(text, read_file(path, kMaxTableBytes));
    read_table(text, visit);
  }
  return ok();
}

Result<UniqueFd> ask_for_unix_sockets() {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket) return Error::from_errno("Cannot query the kernel for Unix sockets");
  struct {
    nlmsghdr header;
    unix_diag_req request;
  } message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = AF_UNIX;
  message.request.udiag_states = ~0U;
  message.request.udiag_show = UDIAG_SHOW_PEER;
  if (::send(socket.get(), &message, sizeof message, 0) != static_cast<ssize_t>(sizeof message))
    return Error::from_errno("Cannot query the kernel for Unix sockets");
  return socket;
}

void read_peer(const nlmsghdr* header, std::map<Inode, Inode>& peers) {
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(unix_diag_msg))) return;
  const auto* message = static_cast<const unix_diag_msg*>(NLMSG_DATA(header));
  auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
  auto left = static_cast<unsigned>(header->nlmsg_len - NLMSG_LENGTH(sizeof *message));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    std::uint32_t peer = 0;
    if (attribute->rta_type != UNIX_DIAG_PEER || RTA_PAYLOAD(attribute) < sizeof peer) continue;
    std::memcpy(&peer, RTA_DATA(attribute), sizeof peer);
    if (peer != 0) peers[message->udiag_ino] = peer;
  }
}

}  // namespace

Result<std::map<Inode, Connection>> tcp_connections(pid_t pid) {
  std::map<Inode, Connection> connections;
  const auto visit = [&](Inode inode, unsigned long state, const std::string& local,
                         const std::string& remote) {
    if (state == kListen || state == kClosed) return;
    Connection& connection = connections[inode];
    connection.local = local;
    connection.remote = remote;
    connection.established = state == kEstablished;
  };
  CKPT_TRYV(read_tables(pid, {"tcp", "tcp6"}, visit));
  return connections;
}

Result<std::map<Inode, std::string>> bound_addresses(pid_t pid) {
  std::map<Inode, std::string> addresses;
  const auto visit = [&](Inode inode, unsigned long, const std::string& local, const std::string&) {
    addresses[inode] = local;
  };
  CKPT_TRYV(read_tables(pid, {"tcp", "tcp6", "udp", "udp6"}, visit));
  return addresses;
}

std::string network_of(pid_t pid) {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
  std::error_code gone;
  const auto network = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", gone);
  if (!boot || gone) return {};
  return boot->substr(0, boot->find('\n')) + " " + network.string();
}

Result<std::string> why_not_bound(const std::string& protocol, const std::string& address) {
  const bool is_tcp = protocol.starts_with("TCP");
  CKPT_TRY(parsed, control::parse_address(address));
  if (parsed.is_unix || (!is_tcp && !protocol.starts_with("UDP")))
    return Error(ErrorCode::kProtocol,
                 "\"" + protocol + "\" at \"" + address + "\" is not a socket that can be moved");
  const UniqueFd socket(
      ::socket(parsed.endpoint.protocol().family(), (is_tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0));
  const int yes = 1;  // CRIU sets this option, too, so the address of a former connection counts as free
  if (is_tcp) (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (socket &&
      ::bind(socket.get(), parsed.endpoint.data(), static_cast<socklen_t>(parsed.endpoint.size())) == 0)
    return std::string();
  return std::string(std::strerror(errno));
}

std::string protocol_of(const std::string& descriptor) {
  char name[64] = {};
  const ssize_t got = ::getxattr(descriptor.c_str(), "system.sockprotoname", name, sizeof name - 1);
  return got > 0 ? name : "";
}

bool is_internet(const std::string& protocol) {
  return !protocol.empty() && !protocol.starts_with("UNIX") && protocol != "NETLINK";
}

bool kernel_tells_credentials_of_all() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  int value = 0;
  socklen_t size = sizeof value;
  return !socket || ::getsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &value, &size) == 0 ||
         errno != EOPNOTSUPP;
}

Result<std::map<Inode, Inode>> unix_peers() {
  CKPT_TRY(socket, ask_for_unix_sockets());
  std::map<Inode, Inode> peers;
  std::vector<char> buffer(64u << 10);
  for (;;) {
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error::from_errno("Cannot read the kernel's Unix sockets");
    auto left = static_cast<unsigned>(got);
    for (auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return peers;
      if (header->nlmsg_type == NLMSG_ERROR)
        return Error(ErrorCode::kIo, "The kernel does not list Unix sockets");
      if (header->nlmsg_type == SOCK_DIAG_BY_FAMILY) read_peer(header, peers);
    }
  }
}

}  // namespace ckpt::agent::host
