// SPDX-License-Identifier: Apache-2.0
// Reads the sockets of this machine from the kernel. They show which sockets of a process tree have a peer
// outside the tree.
// Threads: any. Errors: kIo if the kernel does not answer.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/host_process/processes/descriptors.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct Connection {
  std::string local;  // local address, such as "10.0.0.1:22"
  std::string remote;
  bool established = false;  // true if the connection is neither being opened nor being closed
  [[nodiscard]] std::string text() const { return local + " -> " + remote; }
};
// Returns the TCP sockets of process `pid`'s network that are connected, connecting, or half closed.
Result<std::map<Inode, Connection>> tcp_connections(pid_t pid);

// Returns the addresses at which TCP and UDP sockets of process `pid`'s network listen or are bound: inode ->
// "127.0.0.1:8080".
Result<std::map<Inode, std::string>> bound_addresses(pid_t pid);

// Returns a text that identifies the network of process `pid` among all networks of all machines. The text is
// empty if the kernel does not report the network.
[[nodiscard]] std::string network_of(pid_t pid);
// Returns the reason why a socket of `protocol` cannot be bound to `address` in this process's network. An
// empty string means that it can be bound. Errors: kProtocol for another protocol, or for text that is not an
// address.
Result<std::string> why_not_bound(const std::string& protocol, const std::string& address);

// Returns the protocol of an open socket (/proc/PID/fd/N): "TCP", "UDPv6", "UNIX", ... The text is empty if
// the kernel does not report the protocol.
[[nodiscard]] std::string protocol_of(const std::string& descriptor);
[[nodiscard]] bool is_internet(const std::string& protocol);

// Checks whether the kernel reports SO_PASSCRED for all sockets. Since 6.16 the kernel returns an error
// unless the socket is a Unix or netlink socket.
[[nodiscard]] bool kernel_tells_credentials_of_all();

// Returns the connected Unix sockets of this process's network: inode -> inode of the other end.
Result<std::map<Inode, Inode>> unix_peers();

}  // namespace ckpt::agent::host
