// SPDX-License-Identifier: Apache-2.0
// The limit of an instance's log (setting job_log_limit_mib). Its oldest bytes are given back to the file
// system, and the file has a hole there. Offsets of what stays do not change, and the program writes on as
// before.
// Threads: any; they block. Errors: kIo; kNotSupported where the file system has no holes: the log has no
// limit there.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent {

// Leaves at least the last `limit` bytes, and an eighth more at most. 0: no limit. Returns the bytes that
// were freed. A file that has another owner than the folder, or a second name, is left as it is.
Result<std::uint64_t> free_old_output(const std::string& path, std::uint64_t limit);
// The first byte at or after `offset` that was not freed. Behind freed bytes a line begins there, where one
// begins within 64 KiB.
std::uint64_t first_kept_byte(const std::string& path, std::uint64_t offset);

}  // namespace ckpt::agent
