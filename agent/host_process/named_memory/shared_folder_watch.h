// SPDX-License-Identifier: Apache-2.0
// Marks each file in /dev/shm with the process that makes it (names_alone.h), since the file itself does not
// name its maker. A file whose maker ends before the watch looks stays without a mark.
// Threads: one of its own, which ends with the object. Errors: kNotSupported where the kernel reports no
// makers (Linux older than 5.9, no root).
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
  UniqueFd end_;  // the thread ends when this is closed
  std::thread thread_;
};

}  // namespace ckpt::agent::host
