// SPDX-License-Identifier: Apache-2.0
// The pages of the largest process on their way out of CRIU. CRIU writes them into a pipe instead of a file;
// it moves pages from pipe to pipe without copying them. A thread here reads them into a memory file that was
// given its memory before the pause. It reports how far it is, so that they can be sent while the dump goes
// on.
// Threads: one caller; the stream's own thread calls `grew`. Ownership: the memory file is the caller's after
// finish(). Errors: kOutOfMemory where the pages do not fit, kIo. A stream that goes away closes its end: the
// dump fails, and CRIU cures the process.
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
  // `most`: how long the file can become; `expected`: so much of it gets memory now, which takes milliseconds
  // (offload()).
  static Result<std::unique_ptr<PageStream>> create(std::uint64_t most, std::uint64_t expected);
  ~PageStream();
  PageStream(const PageStream&) = delete;
  PageStream& operator=(const PageStream&) = delete;

  [[nodiscard]] const MemoryLog& log() const noexcept { return *log_; }

  // Links the pipe into `folder` under the name that CRIU gives the pages of the `position`th process.
  // `grew`: bytes by now.
  Result<void> begin(const std::string& folder, std::size_t position,
                     std::function<void(std::uint64_t)> grew);
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(); }
  // Waits for the rest in the pipe, after CRIU's end. Called once.
  Result<PlacedPages> finish();

 private:
  explicit PageStream(std::unique_ptr<MemoryLog> log) : log_(std::move(log)) {}
  void read_all();
  [[nodiscard]] bool wait_for_pages() const;

  std::unique_ptr<MemoryLog> log_;  // of the thread while it runs
  std::string name_;
  UniqueFd read_end_;
  UniqueFd write_end_;  // so that the reader sees no end before CRIU has begun
  UniqueFd cancel_;     // an eventfd
  std::function<void(std::uint64_t)> grew_;
  std::atomic<bool> has_any_{false};
  std::optional<Error> error_;  // of the thread until it is joined
  std::thread thread_;
};

}  // namespace ckpt::agent::host
