// SPDX-License-Identifier: Apache-2.0
// The search for the libcuda.so.1 that the loader would find without the shim. The shim has taken that name,
// so dlopen of the bare name returns the shim.
// Threads: any. Errors: unreadable files have no entries. The cache is untrusted, so every offset is checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::shim {

// Returns existing files, in the loader's order: LD_LIBRARY_PATH, the loader's cache, the usual folders. The
// shim's own file is excluded.
[[nodiscard]] std::vector<std::string> driver_candidates();

// Returns the paths for `soname` in the bytes of an /etc/ld.so.cache.
[[nodiscard]] std::vector<std::string> paths_in_loader_cache(std::string_view cache, std::string_view soname);

}  // namespace ckpt::shim
