// SPDX-License-Identifier: Apache-2.0
// A log file that is set aside as NAME.1 when it has its size, NAME.1 as NAME.2 and so on. Standard error may be such a
// file, if it is a regular one that is appended to. Its descriptor goes over to the new file, and with it what the
// process's libraries write.
// Threads: one. Ownership: the descriptor is the caller's (standard error), or owned. Errors: where a file cannot be
// set aside or made, the line goes to where the last one went.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::logging {

struct LogLimits {
  std::size_t bytes = std::size_t{32} << 20;  // of the file that is written
  unsigned kept = 3;                          // files that were set aside
};

class LogFile {
 public:
  // Appends to that file, mode 0600.
  static Result<LogFile> open(const std::string& path, LogLimits limits = {});
  // Writes to standard error, a file or not.
  static LogFile of_stderr(LogLimits limits = {});

  // One line, with its end.
  void write(std::string_view line);

 private:
  LogFile(UniqueFd owned, int fd, std::string path, LogLimits limits)
      : owned_(std::move(owned)), fd_(fd), path_(std::move(path)), limits_(limits) {}
  void rotate();
  [[nodiscard]] bool is_at_path() const;

  UniqueFd owned_;  // none for standard error
  int fd_;
  std::string path_;  // empty: it is no file that is set aside
  LogLimits limits_;
};

}  // namespace ckpt::logging
