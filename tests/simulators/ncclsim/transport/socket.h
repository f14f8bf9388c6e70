// SPDX-License-Identifier: Apache-2.0
// TCP sockets that never block: each wait ends at the deadline or when it is stopped.
//
// Threads: one for each socket. Ownership: the caller's Descriptor. Errors: ncclRemoteError: the other side
// has exited; ncclSystemError: an error of this system, or the deadline; ncclInternalError: stopped.
#pragma once

#include <chrono>
#include <cstddef>

#include "tests/simulators/ncclsim/transport/descriptor.h"
#include "tests/simulators/ncclsim/transport/endpoint.h"

namespace ncclsim {

using Clock = std::chrono::steady_clock;

// The maximum time of a wait, and the event that ends the wait early.
struct Limits {
  const Stop* stop = nullptr;
  Clock::time_point deadline = Clock::time_point::max();
};

// Opens a listener on a free port of the address of `at`.
ncclResult_t listen_at(Endpoint at, Descriptor* out, Endpoint* bound);
// Begins to connect. The socket becomes writable when the attempt has ended, successfully or not.
ncclResult_t begin_connect(const Endpoint& to, Descriptor* out);
ncclResult_t connect_to(const Endpoint& to, const Limits& limits, Descriptor* out);
// Returns the next connection, or an invalid descriptor if no connection waits.
Descriptor accept_from(int listener);

ncclResult_t send_all(int socket, const void* data, std::size_t bytes, const Limits& limits);
ncclResult_t receive_all(int socket, void* data, std::size_t bytes, const Limits& limits);

// Moves the bytes that are possible without blocking. `moved`: the number of bytes; 0 means that the caller
// must retry later.
ncclResult_t send_some(int socket, const void* data, std::size_t bytes, std::size_t* moved);
ncclResult_t receive_some(int socket, void* data, std::size_t bytes, std::size_t* moved);

// Returns the milliseconds until the given time for poll; -1 means no deadline.
int milliseconds_until(Clock::time_point then);

}  // namespace ncclsim
