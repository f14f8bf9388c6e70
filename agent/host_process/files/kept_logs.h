// SPDX-License-Identifier: Apache-2.0
// Logs of programs that failed, stored in one folder because their own folder is removed. For each log the
// last kKeptLogBytes are stored. The newest kMaxKeptLogs logs stay for kKeepLogsFor.
// Threads: any. The functions block. Ownership: only root can access the folder. Errors: none. A failure to
// store a log is logged.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxKeptLogs = 32;
inline constexpr std::size_t kKeptLogBytes = std::size_t{256} << 10;
inline constexpr std::chrono::hours kKeepLogsFor{24 * 14};

// Stores a copy of the log and returns the copy's path. Returns nullopt if there is no log at `path` or no
// space for the copy. `name` is the beginning of the copy's name.
std::optional<std::string> save_log(const std::string& folder, const std::string& path,
                                    const std::string& name);
// Removes logs beyond the maximum number, and logs that are too old.
void remove_old_logs(const std::string& folder, std::chrono::seconds keep_for = kKeepLogsFor);

}  // namespace ckpt::agent::host
