// SPDX-License-Identifier: Apache-2.0
// Files and settings of a program at its handover, as its image contains them. The file check before the
// pause (host_process/file_list.h) read the program while it ran. Therefore the image lists the changes since
// then: files that were written, opened or locked later. The target accepts a written file only if both nodes
// share the file.
// Threads: any. All functions block for milliseconds (use offload()). Errors: kRefused names each file that
// prevents a move of the program. kCorrupt reports a malformed image. kIo.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/host_process/file_list.h"

namespace ckpt::agent {

// Saves the changes after the dump of the tree of `root` into the folder `images`. `listed` is the list that
// the target has compared. Call this function at the source.
Result<void> save_handover(pid_t root, const std::string& images, const host::FileList& listed,
                           const host::FileRules& rules);

// Checks the changes before the restore from the folder `images`. `checked` is the result of the list's
// comparison. Call this function at the target.
Result<void> prepare_handover(const std::string& images, const host::CheckedFiles& checked,
                              const std::vector<std::string>& cache_folders, host::Compared when);

}  // namespace ckpt::agent
