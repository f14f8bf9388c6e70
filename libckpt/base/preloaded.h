// SPDX-License-Identifier: Apache-2.0
// Whether LD_PRELOAD puts a library into a program (ld.so(8)).
// Threads: any; reads files. Ownership: none. Errors: none; of a program that cannot be read, nothing is said.
#pragma once

#include <sys/types.h>

#include <string>

namespace ckpt {

// Empty, or why it does not: "/bin/x is a static program". `program`: a path, or a name that is looked for in
// `search_path` (as $PATH); relative paths begin in `folder`. `user`: who runs it. Of a script its interpreter counts.
[[nodiscard]] std::string why_not_preloaded(const std::string& program, const std::string& search_path,
                                            const std::string& folder, uid_t user);

}  // namespace ckpt
