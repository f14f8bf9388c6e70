// SPDX-License-Identifier: Apache-2.0
// Where the loader would find libcuda.so.1, had the shim not taken that name: a dlopen of the bare name
// answers with the shim.
// Threads: any. Errors: what cannot be read has no entries; the cache is untrusted bytes and every offset is
// checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::shim {

// Existing files, in the loader's order: LD_LIBRARY_PATH, its cache, the usual folders. The shim's own file
// is not among them.
[[nodiscard]] std::vector<std::string> driver_candidates();

// The paths that the bytes of an /etc/ld.so.cache give for `soname`.
[[nodiscard]] std::vector<std::string> paths_in_loader_cache(std::string_view cache, std::string_view soname);

}  // namespace ckpt::shim
