// SPDX-License-Identifier: Apache-2.0
// Open files in a dumped image. At the source a timer that has expired and was not read goes on with its interval,
// since CRIU would leave it still. One of an absolute time keeps what is left of it. Files may get other paths. At the
// target CRIU does not ask for the length of a file that both nodes share: it may have grown.
// Threads: any. Errors: kCorrupt for a malformed image; kIo.
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

// At the source, after the dump into the folder `images`: what the image has open and mapped by name. Each file gets the
// path that `other_path` returns for its own.
Result<std::vector<OpenFile>> settle_open_files(const std::string& images, const OtherPath& other_path);

// At the target, before the restore.
Result<void> forget_lengths(const std::string& images, const std::set<std::string>& paths);

// The bytes of files.img, changed. For tests.
Result<std::string> with_settled_files(const std::string& files, const OtherPath& other_path,
                                       std::vector<OpenFile>& found);
Result<std::string> without_lengths(const std::string& files, const std::set<std::string>& paths);

}  // namespace ckpt::agent::host
