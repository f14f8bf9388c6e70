// SPDX-License-Identifier: Apache-2.0
// The log of a daemon, spdlog's default logger. Each message is one line of bounded length without control characters,
// whatever a peer has put into it. The file is bounded, too (log_file.h).
// Threads: any, once it is open. Ownership: process-wide. Errors: those of open() of the file.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/net/log/log_file.h"

namespace ckpt::logging {

inline constexpr std::size_t kLongestLine = 8'192;

struct DaemonLog {
  std::string name;  // of the daemon, in each line; empty: in none
  std::string file;  // empty: standard error
  std::string level = "info";
  LogLimits limits = {};
};

Result<void> open_log(const DaemonLog& log);
// As it stands in the log: "\n" and other control characters escaped, bytes that are no UTF-8 too, the marks of
// private parts (libckpt/base/private_text.h) left out, and cut at kLongestLine.
[[nodiscard]] std::string clean_line(std::string_view message);

}  // namespace ckpt::logging
