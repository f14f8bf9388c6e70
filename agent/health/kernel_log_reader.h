// SPDX-License-Identifier: Apache-2.0
// Reads the kernel's log from its oldest record on and goes on as it grows. /dev/kmsg gives one record for
// each read. Its replacement in tests (a file that grows, a FIFO) has one record a line, in the same form.
// Records that the ring has lost before they were read show as missing numbers only. Threads: the event loop.
// Ownership: the handlers are dropped at stop(). Errors: create() returns why there is nothing to read; a
// failure later is logged and ends the reading.
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
    // The records that were there at the start have been read; once.
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
  bool read_available();  // false: there will be nothing more
  void take(std::string_view bytes);
  void take_record(std::string_view text);
  Task<> wait_for_more();

  asio::any_io_executor executor_;
  FileWatch& files_;
  std::string path_;
  UniqueFd fd_;
  Kind kind_;
  asio::posix::stream_descriptor stream_;  // a duplicate of fd_; not of a file
  Signal grown_;
  std::string line_;  // the beginning of one that has not ended yet
  bool too_long_ = false;
  bool stopped_ = false;
  Handlers handlers_;
};

}  // namespace ckpt::agent
