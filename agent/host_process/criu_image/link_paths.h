// SPDX-License-Identifier: Apache-2.0
// Changes the paths of CRIU's links. CRIU (--link-remap) saves a file that has lost its name through a link,
// "link_remap.N" in the file's folder. Two dumps choose the same numbers, so the target puts the links into
// the image's own folder.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

[[nodiscard]] inline bool is_link_name(std::string_view name) {
  return name.starts_with("link_remap.");
}

struct LinkPath {
  std::string link;  // name that CRIU gave the link in /dev/shm, such as "link_remap.7"
  std::string path;  // absolute path of the link
};

// Changes the links in files.img of the folder `images`.
Result<void> set_link_paths(const std::string& images, const std::vector<LinkPath>& links);

// Returns the changed bytes of files.img. Tests call this function.
Result<std::string> with_link_paths(const std::string& files, const std::vector<LinkPath>& links);

}  // namespace ckpt::agent::host
