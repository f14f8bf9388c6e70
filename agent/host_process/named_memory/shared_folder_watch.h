// SPDX-License-Identifier: Apache-2.0
// Notes on each file that is made in /dev/shm who has made it (names_alone.h), since the file itself does not tell. A
// process that has ended before it is asked for leaves its file without a mark.
// Threads: one of its own. Ownership: it ends with the object. Errors: kNotSupported where the kernel reports no makers
// (Linux older than 5.9, no root).
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
  UniqueFd end_;  // closed: the thread ends
  std::thread thread_;
};

}  // namespace ckpt::agent::host
