// SPDX-License-Identifier: Apache-2.0
// An address on which a rank or a bootstrap root listens, and its interface.
//
// Threads: any. NCCL_SOCKET_IFNAME is read at each call.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// An IPv4 endpoint in its wire format: numbers are in network byte order.
struct Endpoint {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
  std::uint16_t unused = 0;
};

std::string to_text(const Endpoint& endpoint);
// Returns the address, without a port, of the interface that NCCL_SOCKET_IFNAME names. The variable is a list
// of prefixes; a leading "=" means whole names, and a leading "^" excludes the names. If the variable is
// unset, this is the first interface that is up, with the loopback last. Errors: ncclInvalidUsage if there is
// none.
ncclResult_t own_address(Endpoint* out);

}  // namespace ncclsim
