// SPDX-License-Identifier: Apache-2.0
// The write-ahead log of the store's file: syncs it, and copies it into the file when it is large.
//
// SQLite's log is a prefix of whole transactions whatever a power cut leaves of it. One sync makes durable
// all that was committed before it began. After a failed sync the kernel may have given up what it was to
// write. So nothing is durable then until the whole log has been copied.
// Threads: one at a time, the disk thread's of StoreSync. Ownership: owns a connection of its own. Errors:
// kRefused for a full disk, else kIo.
#pragma once

#include <string>

#include "coordinator/state/sqlite.h"
#include "libckpt/base/fd.h"

namespace ckpt::coordinator {

class StoreLog {
 public:
  // Larger, the log is copied into the file. Far larger, the writer waits for that.
  static constexpr std::uint64_t kLogBytes = 4 << 20;
  static constexpr std::uint64_t kMaxLogBytes = 16 << 20;

  // Opens the write-ahead log of the store in the file at `path`, which has one.
  static Result<StoreLog> open(const std::string& path);

  Result<void> sync();
  void copy_if_large();

 private:
  StoreLog(Database copier, UniqueFd log) : copier_(std::move(copier)), log_(std::move(log)) {}
  // True: all that is in the log at that time was copied.
  Result<bool> copy(const char* mode);

  Database copier_;
  UniqueFd log_;
  bool given_up_ = false;  // the kernel may have, on a part of the log
};

}  // namespace ckpt::coordinator
