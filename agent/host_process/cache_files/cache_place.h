// SPDX-License-Identifier: Apache-2.0
// Where a file of a cache goes at the target: its folder is made, and nothing that is there is replaced.
// Other users may write into /tmp, so links are not followed and folders of other users are refused.
// Threads: any; blocks for milliseconds (offload()). Errors: kRefused, naming what is in the way; kIo.
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

// Opens the folder of `path`. With `made`, missing folders are made and noted there. Without it, a missing
// folder is no error, and gives no descriptor.
Result<UniqueFd> open_cache_folder(const std::string& path, const CacheOwner& owner,
                                   std::vector<std::string>* made);

// Gives `content` that name in the folder. False: a file of this name is there already.
Result<bool> place_cache_file(const UniqueFd& folder, const std::string& name, const std::string& content,
                              const CacheOwner& owner, unsigned mode);

// Copies from the descriptors' positions to the end.
Result<void> copy_all(int to, int from, const std::string& what);

}  // namespace ckpt::agent::host
