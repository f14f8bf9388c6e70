// SPDX-License-Identifier: Apache-2.0
// Logs of programs that failed, kept in one folder where their own folder is removed. The last kKeptLogBytes
// of each are kept, the newest kMaxKeptLogs of them, for kKeepLogsFor.
// Threads: any; they block. Ownership: the folder is root's alone. Errors: none; a log that cannot be kept is
// logged.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxKeptLogs = 32;
inline constexpr std::size_t kKeptLogBytes = std::size_t{256} << 10;
inline constexpr std::chrono::hours kKeepLogsFor{24 * 14};

// The copy's path; nullopt: there is no log at `path`, or no space for it. `name`: the beginning of the
// copy's name.
std::optional<std::string> keep_log(const std::string& folder, const std::string& path,
                                    const std::string& name);
// Removes those beyond the number, and those that are too old.
void remove_old_logs(const std::string& folder, std::chrono::seconds keep_for = kKeepLogsFor);

}  // namespace ckpt::agent::host
