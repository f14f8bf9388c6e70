// SPDX-License-Identifier: Apache-2.0
// A job's process and its descendants: listing, signalling, whose they are. Threads: any. Errors: kNotFound if `root` is gone, kRefused for
// more than kMostProcesses or foreign rights. A process id may be used again: the caller knows that `root` still lives (it is a keeper's child).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMostProcesses = 4096;

// `root` first, parents before children.
Result<std::vector<pid_t>> processes_of(pid_t root);

// Lets all of them go on (SIGCONT); what CRIU left stopped at the source runs again.
Result<void> resume_source(pid_t root);

// Ends them at once, stopped or not; `root` first, which ends a whole PID namespace. Nothing there: nothing to do.
void kill_source(pid_t root);

// Every process has exactly these user and group ids and, but for root, no capability: what a restored image must be before it goes on,
// since CRIU gives processes whatever rights the image says.
Result<void> check_credentials(pid_t root, uid_t uid, gid_t gid);

// Bytes of memory that a dump of the tree writes at most (private and shared pages that are not a file's), to find room for it.
Result<std::uint64_t> dump_bytes(pid_t root);

}  // namespace ckpt::agent::host
