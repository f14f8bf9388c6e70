// SPDX-License-Identifier: Apache-2.0
// Files that a program has open only briefly, such as a journal beside a database, or a file that is about to
// be renamed. Such a file is gone before the target could check for it, and the target does not need it. A
// file that was created just before the list is therefore checked again until it is gone or counts as
// lasting.
// Threads: any. The function blocks for up to kLasts (use offload()). Errors: none.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

// The minimum age of a file that counts as lasting. A file also counts as lasting if its file system does not
// record its age.
inline constexpr std::chrono::milliseconds kLasts{400};

// The timing of the checks. Tests replace it.
struct Glances {
  std::chrono::milliseconds lasts =
      kLasts;                  // the age of a lasting file, and the limit of all checks together
  std::function<void()> wait;  // waits between two checks; empty: sleeps briefly
};

// Removes from the list the files whose names were missing at one of the checks. This includes a name that
// exists again, because a program may create a journal repeatedly under one name. Returns true if a file was
// removed. The program may still have such a file open, without a name or under another name. The caller
// therefore makes a new list.
bool leave_out_fleeting(std::vector<FileFact>& facts, const Glances& glances = {});

}  // namespace ckpt::agent::host
