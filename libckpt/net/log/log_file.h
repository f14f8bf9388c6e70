// SPDX-License-Identifier: Apache-2.0
// A log file that is rotated at its size limit: it becomes NAME.1, NAME.1 becomes NAME.2, and so on. Standard
// error may be such a file, if it is a regular file opened for appending. Its descriptor then refers to the
// new file, which also receives output of the process's libraries.
// Threads: one. Ownership: the caller owns the descriptor of standard error; the LogFile owns any other
// descriptor. Errors: if a file cannot be rotated or created, the line is written to the same file as the
// last line.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::logging {

struct LogLimits {
  std::size_t bytes = std::size_t{32} << 20;  // the size limit of the current file
  unsigned retained = 3;                      // the number of rotated files that are retained
};

class LogFile {
 public:
  // Opens the file at `path` for appending, with mode 0600.
  static Result<LogFile> open(const std::string& path, LogLimits limits = {});
  // Returns a log that writes to standard error, whether or not that is a file.
  static LogFile of_stderr(LogLimits limits = {});

  // Writes one line and its line end.
  void write(std::string_view line);

 private:
  LogFile(UniqueFd owned, int fd, std::string path, LogLimits limits)
      : owned_(std::move(owned)), fd_(fd), path_(std::move(path)), limits_(limits) {}
  void rotate();
  [[nodiscard]] bool is_at_path() const;

  UniqueFd owned_;  // the descriptor of the log's own file; empty for standard error
  int fd_;
  std::string path_;  // the path of the file; empty if the file is not rotated
  LogLimits limits_;
};

}  // namespace ckpt::logging
