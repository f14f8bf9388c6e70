// SPDX-License-Identifier: Apache-2.0
// Two faults of UCX 1.13 end the process when a connection is lost at a bad moment, and with it every other
// lane. Both are kept out here. The functions of libucs by which UCX sends and closes sockets are defined in
// this program too, and the dynamic linker takes the program's.
//
// A send that finds its connection gone. While UCX handles what one read brought, a message may make it send.
// Where that fails it forgets that it waits for an answer, and the answer, further on in the same read, fails
// an assertion (tcp_ep.c:939). A message half sent is completed twice (uct_tcp_ep_sendv). So a send into a
// lost connection succeeds, as one does that comes a moment before the loss. The next read finds the end, and
// UCX handles that well.
//
// A descriptor's number that is used again. Events that UCX's own thread could not handle wait under the
// number of their descriptor until the worker is driven. If the worker closed it meanwhile, and another lane
// got the number, an assertion fails (async.c:643). So a closed socket's number stays taken until
// kKeptNumbers others were closed: far more than can be in the moment that such an event waits.
//
// Threads: any. Errors: kNotSupported where UCX does not call these definitions, as in a program that was
// linked to it statically.
#pragma once

#include <cstddef>

#include "libckpt/base/result.h"

namespace ckpt::transport {

inline constexpr std::size_t kKeptNumbers = 128;

// Moves work without the guard. A lost connection may then end the process: the caller reports that.
Result<void> check_ucx_guard();

}  // namespace ckpt::transport
