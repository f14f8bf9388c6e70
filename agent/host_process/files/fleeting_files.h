// SPDX-License-Identifier: Apache-2.0
// Files that a program has open for a moment only: a journal beside a database, a file that is about to get
// its name. Such a file is gone before the target could look for it, and the target does not need it. A file
// that was made just before the list is therefore looked at again until it is gone or counts as lasting.
// Threads: any. The function blocks for up to kLasts (use offload()). Errors: none.
#pragma once

#include <chrono>
#include <vector>

#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

// A file of this age counts as lasting, and so does a file whose file system does not record its age.
inline constexpr std::chrono::milliseconds kLasts{400};

// Removes the files from the list whose names were gone at a glance, even if the program has made them again.
// A journal comes and goes under one name. Returns whether it removed any. The program may have a removed
// file open still, without a name or under another one, so the caller makes a new list.
bool leave_out_fleeting(std::vector<FileFact>& facts);

}  // namespace ckpt::agent::host
