// SPDX-License-Identifier: Apache-2.0
// Addresses and sockets of TLS lanes. Threads: pure functions. Errors: kInvalidArgument for a text that is no
// address, errno of the socket's calls.
#pragma once

#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/transport/lane_address.h"

namespace ckpt::transport {

// The scheme is "tls:".
std::string format_tls_address(const LaneAddress& address);
Result<LaneAddress> parse_tls_address(const std::string& text);

// Nonblocking. kUnavailable: no port of the range is left.
Result<UniqueFd> listen_tls(const LaneAddress& local, PortRange ports = {});
// An address that this machine does not have is refused.
Result<void> check_local(const LaneAddress& local);
Result<LaneAddress> local_address_of(int socket);
// Nonblocking. The connection is under way, or has failed already: then its first use shows it.
Result<UniqueFd> dial_tls(const LaneAddress& local, const LaneAddress& address);
// Sets up an accepted connection: small messages leave at once, and a host that has gone ends the connection
// within about 15 seconds.
Result<void> set_up_tls_socket(int socket);

}  // namespace ckpt::transport
