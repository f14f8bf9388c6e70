// SPDX-License-Identifier: Apache-2.0
// Reads the kernel's log from its oldest record on, and continues as the log grows. /dev/kmsg returns one
// record for each read. Its replacement in tests (a growing file, a FIFO) has one record per line, in the
// same form. Records that the ring buffer lost before they were read are visible only as missing numbers.
// Threads: the event loop. Ownership: the handlers are dropped at stop(). Errors: create() returns the reason
// why nothing can be read. A later failure is logged and stops the reader.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/io/async.h"
#include "agent/io/file_watch.h"
#include "libckpt/base/fd.h"
#include "libckpt/health/kernel_log.h"

namespace ckpt::agent {

class KernelLogReader : public std::enable_shared_from_this<KernelLogReader> {
 public:
  struct Handlers {
    std::function<void(health::KernelRecord)> record;
    // Called once, after the records that existed at the start were read.
    std::function<void()> caught_up;
  };
  static Result<std::shared_ptr<KernelLogReader>> create(const asio::any_io_executor& executor,
                                                         FileWatch& files, const std::string& path);
  void start(Handlers handlers);
  void stop();

 private:
  enum class Kind { kDevice, kFile, kPipe };
  KernelLogReader(const asio::any_io_executor& executor, FileWatch& files, std::string path, UniqueFd fd,
                  Kind kind);
  Task<> read_loop();
  bool read_available();  // reads the available records; returns false if there will be no more records
  void handle(std::string_view bytes);
  void handle_record(std::string_view text);
  Task<> wait_for_more();

  asio::any_io_executor executor_;
  FileWatch& files_;
  std::string path_;
  UniqueFd fd_;
  Kind kind_;
  asio::posix::stream_descriptor stream_;  // duplicate of fd_; not used for a regular file
  AsyncEvent grown_;
  std::string line_;  // the beginning of an incomplete line
  bool too_long_ = false;
  bool stopped_ = false;
  Handlers handlers_;
};

}  // namespace ckpt::agent
