// SPDX-License-Identifier: Apache-2.0
// The limit of an instance's log (setting job_log_limit_mib). The log's oldest bytes are returned to the file
// system, which leaves a hole in the file. Offsets of the remaining bytes do not change, and the program
// continues to write as before.
// Threads: any. The functions block. Errors: kIo. kNotSupported if the file system has no holes, and the log
// then has no limit.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent {

// Deletes the oldest bytes. At least the last `limit` bytes stay, and at most an eighth more. 0 means no
// limit. Returns the number of deleted bytes. The function does not change a file with an owner other than
// the folder's owner, or a file with a second name.
Result<std::uint64_t> free_old_output(const std::string& path, std::uint64_t limit);
// Returns the first byte at or after `offset` that was not deleted. After deleted bytes, the result is the
// beginning of a line if a line begins within 64 KiB.
std::uint64_t first_kept_byte(const std::string& path, std::uint64_t offset);

}  // namespace ckpt::agent
