// SPDX-License-Identifier: Apache-2.0
// Sockets that listen: TCP for those who have a certificate, or a Unix socket for this user and root.
// Threads: pure functions. Ownership: the caller owns the acceptor. Errors: kRefused for TCP without TLS; those of
// the system, naming the address.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::control {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// Bound and listening. A Unix socket has mode 0600, and takes the place of one that a killed process left.
// `has_tls`: whether those who connect over TCP must show a certificate.
Result<Acceptor> listen_at(asio::any_io_executor executor, const std::string& address, bool has_tls);

// The user who connected to a Unix socket, as the kernel knows it (SO_PEERCRED). Empty: TCP, or it has gone.
[[nodiscard]] std::optional<uid_t> user_of(asio::generic::stream_protocol::socket& socket);
// True for root and this process's own user; false for an empty one.
[[nodiscard]] bool is_trusted_user(std::optional<uid_t> user) noexcept;
[[nodiscard]] bool is_unix(const Acceptor& acceptor);

}  // namespace ckpt::control
