// SPDX-License-Identifier: Apache-2.0
// A guard against two faults of UCX 1.13. Each fault terminates the process, with every other lane, when a
// connection is lost at a certain moment. This program also defines the functions of libucs by which UCX
// sends and closes sockets, and the dynamic linker uses the program's definitions.
//
// The first fault is a send that finds its connection lost. While UCX handles the data of one read, a message
// may make it send. If that send fails, UCX forgets that it waits for an answer. The answer, later in the
// same read, then fails an assertion (tcp_ep.c:939). A half-sent message is completed twice
// (uct_tcp_ep_sendv). A send into a lost connection therefore succeeds here, like a send shortly before the
// loss. The next read finds the end, and UCX handles that correctly.
//
// The second fault is a descriptor's number that is reused. Events that UCX's own thread could not handle
// wait under the number of their descriptor until the worker is driven. If the worker closed the descriptor
// meanwhile, and another lane got the number, an assertion fails (async.c:643). A closed socket's number
// therefore stays in use until kKeptNumbers other sockets were closed. That is far more than can be closed
// while such an event waits.
//
// Threads: any. Errors: kNotSupported if UCX does not call these definitions, as in a program that was linked
// to it statically.
#pragma once

#include <cstddef>

#include "libckpt/base/result.h"

namespace ckpt::transport {

inline constexpr std::size_t kKeptNumbers = 128;

// Checks the guard. Moves also work without the guard, but then a lost connection may terminate the process.
// The caller reports a missing guard.
Result<void> check_ucx_guard();

}  // namespace ckpt::transport
