// SPDX-License-Identifier: Apache-2.0
// Files and settings of a program at its switch, as they are in its image. The file check before the pause
// (host_process/file_list.h) saw the program while it ran. So the image lists what has changed since: files
// that were written, opened or locked later. The target accepts a written one only if both nodes have the
// same file.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: kRefused, naming each file that keeps
// the program from the target; kCorrupt for an image that is malformed; kIo.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/host_process/file_list.h"

namespace ckpt::agent {

// Saves the changes after the dump of the tree of `root` into the folder `images`. `listed` is the list that
// the target has compared. Called at the source.
Result<void> save_switch(pid_t root, const std::string& images, const host::FileList& listed,
                         const host::FileRules& rules);

// Checks the changes before the restore from the folder `images`. `checked` is the result of the list's
// comparison. Called at the target.
Result<void> prepare_switch(const std::string& images, const host::CheckedFiles& checked,
                            const std::vector<std::string>& cache_folders, host::Compared when);

}  // namespace ckpt::agent
