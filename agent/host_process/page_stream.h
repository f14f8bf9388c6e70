// SPDX-License-Identifier: Apache-2.0
// Receives the pages of the largest process from CRIU. CRIU writes the pages into a pipe instead of a file,
// and moves them from pipe to pipe without a copy. A thread reads the pages into a memory file whose memory
// was allocated before the pause. The thread reports its progress, so that the pages can be sent during the
// dump.
// Threads: one caller. The stream's own thread calls `grew`. Ownership: the caller owns the memory file after
// finish(). Errors: kOutOfMemory if the pages do not fit, kIo. The destructor closes the read end of the
// pipe. The dump then fails, and CRIU restores the process's state.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_log.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

class PageStream {
 public:
  // Creates a stream. `limit` is the maximum length of the file. The first `expected` bytes get memory now,
  // which takes milliseconds (use offload()).
  static Result<std::unique_ptr<PageStream>> create(std::uint64_t limit, std::uint64_t expected);
  ~PageStream();
  PageStream(const PageStream&) = delete;
  PageStream& operator=(const PageStream&) = delete;

  [[nodiscard]] const MemoryLog& log() const noexcept { return *log_; }

  // Links the pipe into `folder` under the name that CRIU gives the pages of the `position`th process. `grew`
  // receives the current number of bytes.
  Result<void> begin(const std::string& folder, std::size_t position,
                     std::function<void(std::uint64_t)> grew);
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(); }
  // Waits for the rest of the data in the pipe, and returns the pages. Call this function once, after CRIU
  // has exited.
  Result<PlacedPages> finish();

 private:
  explicit PageStream(std::unique_ptr<MemoryLog> log) : log_(std::move(log)) {}
  void read_all();
  [[nodiscard]] bool wait_for_pages() const;

  std::unique_ptr<MemoryLog> log_;  // log that the thread owns while it runs
  std::string name_;
  UniqueFd read_end_;
  UniqueFd write_end_;  // write end of the pipe, kept open so that the reader sees no end of file before CRIU
                        // begins
  UniqueFd cancel_;     // an eventfd that cancels the thread
  std::function<void(std::uint64_t)> grew_;
  std::atomic<bool> has_any_{false};
  std::optional<Error> error_;  // error of the thread; other threads read it after the join
  std::thread thread_;
};

}  // namespace ckpt::agent::host
