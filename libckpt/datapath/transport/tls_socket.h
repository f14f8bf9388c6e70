// SPDX-License-Identifier: Apache-2.0
// Addresses and sockets of TLS lanes.
// Threads: pure functions. Errors: kInvalidArgument for a text that is not an address, errno of the socket's
// calls.
#pragma once

#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/transport/lane_address.h"

namespace ckpt::transport {

// Converts between an address and its text, with the scheme "tls:".
std::string format_tls_address(const LaneAddress& address);
Result<LaneAddress> parse_tls_address(const std::string& text);

// Returns a nonblocking listening socket. Returns kUnavailable if no port of the range is left.
Result<UniqueFd> listen_tls(const LaneAddress& local, PortRange ports = {});
// Checks that this machine has the address, and refuses any other address.
Result<void> check_local(const LaneAddress& local);
Result<LaneAddress> local_address_of(int socket);
// Returns a nonblocking socket whose connection is in progress or has already failed. A failure appears at
// the first use.
Result<UniqueFd> dial_tls(const LaneAddress& local, const LaneAddress& address);
// Sets up an accepted connection. Small messages are sent at once, and a connection to an unreachable host is
// closed within about 15 seconds.
Result<void> set_up_tls_socket(int socket);

}  // namespace ckpt::transport
