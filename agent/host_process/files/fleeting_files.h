// SPDX-License-Identifier: Apache-2.0
// Files that a program has open for a moment only: a journal beside a database, a file that is about to get
// its name. Such a file is gone before the target could look for it, and the target does not need it. A file
// that was made just before the list is therefore looked at again until it is gone or counts as lasting.
// Threads: any. The functions block for up to kLasts (use offload()). Errors: none.
#pragma once

#include <chrono>
#include <vector>

#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

// A file of this age counts as lasting.
inline constexpr std::chrono::milliseconds kLasts{400};

// Removes the files from the list whose names are gone. A file that is still open without its name travels
// with the image.
void leave_out_fleeting(std::vector<FileFact>& facts);

}  // namespace ckpt::agent::host
