// SPDX-License-Identifier: Apache-2.0
// The GNU build id of an ELF file, which distinguishes builds of a program or library.
// Threads: any. Errors: none. The id is empty for a file that cannot be read, has no id, or is not an ELF
// file of this machine's kind. The file is not trusted: every offset is checked.
#pragma once

#include <string>

namespace ckpt::agent::host {

// Returns the build id in hexadecimal.
[[nodiscard]] std::string build_id_of(const std::string& path);

}  // namespace ckpt::agent::host
