// SPDX-License-Identifier: Apache-2.0
// Changes an image so that its TCP connections to other programs are restored as ended. Their sockets are
// unconnected and read the end of the stream. Connections with both ends in the image stay as they are. Sockets
// whose connection had ended before lose the address that CRIU would bind them to.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The value of SO_MARK of such a socket until report_resets() (outer_connections.h) sets it to 0. It replaces
// the program's own mark, because the ended socket sends no more packets.
inline constexpr std::uint32_t kEndedMark = 0x67e0c105;

struct ImageConnections {
  std::size_t inner = 0;             // sockets of connections within the image
  std::vector<std::uint32_t> ended;  // CRIU's numbers of the connections with one end outside the image
};

// Changes the image in the folder `images`. Call this function after the dump.
Result<ImageConnections> end_outer_connections(const std::string& images);

// Returns the changed bytes of files.img, and the connections in it. Tests call this function.
Result<std::string> with_ended_connections(const std::string& files, ImageConnections& found);

}  // namespace ckpt::agent::host
