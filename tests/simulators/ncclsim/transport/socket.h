// SPDX-License-Identifier: Apache-2.0
// TCP sockets that never block: each wait ends at the deadline or when it is stopped.
//
// Threads: one for each socket. Ownership: the caller's Descriptor.
// Errors: ncclRemoteError: the other side is gone; ncclSystemError: this system, or the deadline;
// ncclInternalError: stopped.
#pragma once

#include <chrono>
#include <cstddef>

#include "tests/simulators/ncclsim/transport/descriptor.h"
#include "tests/simulators/ncclsim/transport/endpoint.h"

namespace ncclsim {

using Clock = std::chrono::steady_clock;

// How long to wait at most, and what ends a wait early.
struct Limits {
  const Stop* stop = nullptr;
  Clock::time_point deadline = Clock::time_point::max();
};

// A listener on a free port of `at`'s address.
ncclResult_t listen_at(Endpoint at, Descriptor* out, Endpoint* bound);
// Begins to connect; writable means that it has ended, well or not.
ncclResult_t begin_connect(const Endpoint& to, Descriptor* out);
ncclResult_t connect_to(const Endpoint& to, const Limits& limits, Descriptor* out);
// The next connection, or an invalid descriptor: none waits.
Descriptor accept_from(int listener);

ncclResult_t send_all(int socket, const void* data, std::size_t bytes, const Limits& limits);
ncclResult_t receive_all(int socket, void* data, std::size_t bytes, const Limits& limits);

// Moves what goes at once. `moved`: how much; 0 is "not now".
ncclResult_t send_some(int socket, const void* data, std::size_t bytes, std::size_t* moved);
ncclResult_t receive_some(int socket, void* data, std::size_t bytes, std::size_t* moved);

// Milliseconds until then, for poll: -1 is no end.
int milliseconds_until(Clock::time_point then);

}  // namespace ncclsim
