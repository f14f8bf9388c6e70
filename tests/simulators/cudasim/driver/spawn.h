// SPDX-License-Identifier: Apache-2.0
// Starting cudasim-device.
#pragma once

namespace cudasim {

// Starts the executor with `socket` as its descriptor 3, detached from the program (not its child, no signals
// of its terminal). False with a line on stderr if there is no such binary: that is a broken installation.
bool spawn_executor(int socket);

}  // namespace cudasim
