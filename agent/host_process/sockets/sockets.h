// SPDX-License-Identifier: Apache-2.0
// The sockets of this machine as the kernel lists them. They show which sockets of a process tree have a peer
// outside it.
// Threads: any. Errors: kIo if the kernel does not answer.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/host_process/processes/descriptors.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct Connection {
  std::string local;  // "10.0.0.1:22"
  std::string remote;
  bool established = false;  // not being opened or closed
  [[nodiscard]] std::string text() const { return local + " -> " + remote; }
};
// Connected (or connecting, or half closed) TCP sockets of process `pid`'s network.
Result<std::map<Inode, Connection>> tcp_connections(pid_t pid);

// Returns the addresses at which TCP and UDP sockets of process `pid`'s network listen or are bound: inode ->
// "127.0.0.1:8080".
Result<std::map<Inode, std::string>> bound_addresses(pid_t pid);

// Returns a text that tells the network of process `pid` from all others, on all machines. Empty if the
// kernel does not report it.
[[nodiscard]] std::string network_of(pid_t pid);
// Returns why a socket of that protocol cannot be bound to such an address in this process's network; empty:
// it can. Errors: kProtocol for another protocol, or text that is not an address.
Result<std::string> why_not_bound(const std::string& protocol, const std::string& address);

// "TCP", "UDPv6", "UNIX", ... of an open socket (/proc/PID/fd/N); empty if the kernel does not report it.
[[nodiscard]] std::string protocol_of(const std::string& descriptor);
[[nodiscard]] bool is_internet(const std::string& protocol);

// Since 6.16 the kernel answers for SO_PASSCRED with an error unless the socket is of Unix or netlink.
[[nodiscard]] bool kernel_tells_credentials_of_all();

// Connected Unix sockets of this process's network: inode -> the other end's.
Result<std::map<Inode, Inode>> unix_peers();

}  // namespace ckpt::agent::host
