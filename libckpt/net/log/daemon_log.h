// SPDX-License-Identifier: Apache-2.0
// The log of a daemon, which is spdlog's default logger. Each message is one line of bounded length without
// control characters, whatever text a peer sent. The file is bounded, too (log_file.h).
// Threads: any, once the log is open. Ownership: process-wide. Errors: those of opening the file.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/net/log/log_file.h"

namespace ckpt::logging {

inline constexpr std::size_t kLongestLine = 8'192;

struct DaemonLog {
  std::string name;  // the daemon's name in each line; if empty, lines have no name
  std::string file;  // the path of the file; if empty, the log is written to standard error
  std::string level = "info";
  LogLimits limits = {};
};

Result<void> open_log(const DaemonLog& log);
// Returns the message as the log stores it. "\n", other control characters and bytes that are not UTF-8 are
// escaped. The marks of private parts (libckpt/base/private_text.h) are removed. The line is truncated at
// kLongestLine.
[[nodiscard]] std::string clean_line(std::string_view message);

}  // namespace ckpt::logging
