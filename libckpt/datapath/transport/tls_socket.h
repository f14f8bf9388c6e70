// SPDX-License-Identifier: Apache-2.0
// Addresses and sockets of TLS lanes. Threads: pure functions. Errors: kInvalidArgument for a text that is no
// address, errno of the socket's calls.
#pragma once

#include <sys/socket.h>

#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::transport {

// An IPv4 or IPv6 address with a port.
struct TlsAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
};

// "tls:10.0.0.5:4711" or "tls:[fd77::1]:4711", and back. An address has one form only, since both ends take
// it for the identity of their key. An address that stands for no interface is refused.
std::string format_tls_address(const TlsAddress& address);
Result<TlsAddress> parse_tls_address(const std::string& text);
// The same without a port: it is 0.
Result<TlsAddress> parse_tls_ip(const std::string& ip);

// Nonblocking; a port is chosen.
Result<UniqueFd> listen_tls(const TlsAddress& local);
Result<TlsAddress> local_address_of(int socket);
// Nonblocking. The connection is under way, or has failed already: then its first use shows it.
Result<UniqueFd> dial_tls(const TlsAddress& local, const TlsAddress& address);
// Of an accepted connection: small messages leave at once, and a host that has gone ends the connection within
// a minute or so.
Result<void> set_up_tls_socket(int socket);

}  // namespace ckpt::transport
