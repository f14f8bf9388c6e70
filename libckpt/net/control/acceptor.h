// SPDX-License-Identifier: Apache-2.0
// Listening sockets: TCP for peers with a certificate, or a Unix socket for this user and root.
// Threads: pure functions. Ownership: the caller owns the acceptor. Errors: kRefused for TCP without TLS;
// system errors with the address.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::control {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// Returns a bound, listening acceptor. A Unix socket has mode 0600 and replaces the socket that a killed
// process left behind. `has_tls` states whether peers over TCP must show a certificate.
Result<Acceptor> listen_at(asio::any_io_executor executor, const std::string& address, bool has_tls);

// Returns the user who connected to a Unix socket, as the kernel reports it (SO_PEERCRED). Returns nullopt
// for TCP and for a disconnected peer.
[[nodiscard]] std::optional<uid_t> user_of(asio::generic::stream_protocol::socket& socket);
// Returns true for root and this process's own user. Returns false for nullopt.
[[nodiscard]] bool is_trusted_user(std::optional<uid_t> user) noexcept;
[[nodiscard]] bool is_unix(const Acceptor& acceptor);

}  // namespace ckpt::control
