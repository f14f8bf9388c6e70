// SPDX-License-Identifier: Apache-2.0
// Marks each file in /dev/shm with the process that creates it (names_alone.h), because the file itself does
// not name its creator. If the creator exits before the watch reads the event, the file stays without a mark.
// Threads: a separate thread, which the destructor stops. Errors: kNotSupported if the kernel does not report
// creators (Linux older than 5.9, no root).
#pragma once

#include <thread>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

class SharedFolderWatch {
 public:
  static Result<SharedFolderWatch> start();
  SharedFolderWatch(SharedFolderWatch&&) noexcept = default;
  SharedFolderWatch& operator=(SharedFolderWatch&&) = delete;
  ~SharedFolderWatch();

 private:
  SharedFolderWatch(UniqueFd end, std::thread thread) : end_(std::move(end)), thread_(std::move(thread)) {}
  UniqueFd end_;  // closing this descriptor stops the thread
  std::thread thread_;
};

}  // namespace ckpt::agent::host
