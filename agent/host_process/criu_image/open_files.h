// SPDX-License-Identifier: Apache-2.0
// Changes open files in a dumped image. CRIU would leave a timer disarmed that has expired and was not read,
// so the timer is started again with its interval. A timer with an absolute time keeps its remaining time.
// Files may get other paths. CRIU at the target does not check the length of a file that both nodes share,
// because the file may have grown.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

using OtherPath = std::function<std::string(const std::string&)>;

struct OpenFile {
  std::string path;
  bool is_written = false;
};

// Changes the files that the image has open and mapped by name. Each file gets the path that `other_path`
// returns for its original path. Call this function at the source, after the dump into the folder `images`.
Result<std::vector<OpenFile>> settle_open_files(const std::string& images, const OtherPath& other_path);

// Removes the lengths of the files `paths` from the image. Call this function at the target, before the
// restore.
Result<void> remove_lengths(const std::string& images, const std::set<std::string>& paths);

// Returns the changed bytes of files.img. Tests call this function.
Result<std::string> with_settled_files(const std::string& files, const OtherPath& other_path,
                                       std::vector<OpenFile>& found);
Result<std::string> without_lengths(const std::string& files, const std::set<std::string>& paths);

}  // namespace ckpt::agent::host
