// SPDX-License-Identifier: Apache-2.0
// The GNU build id of an ELF file, which tells two builds of a program or library apart. Threads: any.
// Errors: none; a file that is no ELF file of this machine's kind, cannot be read or carries none has the
// empty id. Nothing in the file is trusted: every offset is checked.
#pragma once

#include <string>

namespace ckpt::agent::host {

// Hexadecimal.
[[nodiscard]] std::string build_id_of(const std::string& path);

}  // namespace ckpt::agent::host
