// SPDX-License-Identifier: Apache-2.0
// An address that a rank or a bootstrap root listens on, and the interface it is of.
//
// Threads: any. NCCL_SOCKET_IFNAME is read at each call.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// IPv4. As it travels between ranks: numbers in network order.
struct Endpoint {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
  std::uint16_t unused = 0;
};

std::string to_text(const Endpoint& endpoint);
// The address, without a port, of the interface that NCCL_SOCKET_IFNAME names: a list of prefixes, "=" before
// it means whole names, "^" the others. Unset: the first that is up, the loopback last.
// Errors: ncclInvalidUsage if there is none.
ncclResult_t own_address(Endpoint* out);

}  // namespace ncclsim
