// SPDX-License-Identifier: Apache-2.0
// Starts the cudasim-device process.
#pragma once

namespace cudasim {

// Starts the executor with `socket` as its descriptor 3, detached from the program: not its child, and
// without signals of its terminal. Returns false with a line on stderr if the binary is missing, which means
// a broken installation.
bool spawn_executor(int socket);

}  // namespace cudasim
