// SPDX-License-Identifier: Apache-2.0
// Finds the location of a cache file at the target. The functions create the file's folder and never replace
// existing files. Other users may write into /tmp, so the functions do not follow links and refuse folders of
// other users.
// Threads: any. The functions block for milliseconds (use offload()). Errors: kRefused names the obstacle.
// kIo.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct CacheOwner {
  uid_t uid = 0;
  gid_t gid = 0;
};

// Opens the folder of `path`. If `made` is given, the function creates missing folders and records them in
// `made`. Without `made`, a missing folder is not an error, and the function returns no descriptor.
Result<UniqueFd> open_cache_folder(const std::string& path, const CacheOwner& owner,
                                   std::vector<std::string>* made);

// Creates a file with `name` and `content` in the folder. Returns false if a file with this name already
// exists.
Result<bool> place_cache_file(const UniqueFd& folder, const std::string& name, const std::string& content,
                              const CacheOwner& owner, unsigned mode);

// Copies the rest of the file `from` to the file `to`, beginning at the current positions of both
// descriptors.
Result<void> copy_all(int to, int from, const std::string& what);

}  // namespace ckpt::agent::host
