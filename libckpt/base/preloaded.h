// SPDX-License-Identifier: Apache-2.0
// Tests whether LD_PRELOAD loads a library into a program (ld.so(8)).
// Threads: any; reads files. Ownership: none. Errors: none; a program that cannot be read yields no result.
#pragma once

#include <sys/types.h>

#include <string>

namespace ckpt {

// Returns why the library is not preloaded, such as "/bin/x is a static program". Returns an empty string if
// it is. `program` is a path, or a name to find in `search_path` (as $PATH). Relative paths begin in
// `folder`. `user` is the user who runs the program. For a script, its interpreter is checked.
[[nodiscard]] std::string why_not_preloaded(const std::string& program, const std::string& search_path,
                                            const std::string& folder, uid_t user);

}  // namespace ckpt
