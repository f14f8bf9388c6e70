// SPDX-License-Identifier: Apache-2.0
// The write-ahead log of the store's file. It syncs the log, and copies it into the file when it is large.
//
// After a power failure SQLite's log always contains a prefix of whole transactions. One sync makes durable
// all transactions that were committed before it began. After a failed sync the kernel may have dropped the
// data to write. So nothing is durable then until the whole log has been copied.
// Threads: one at a time, the disk thread of StoreSync. Ownership: owns a separate connection. Errors:
// kRefused for a full disk, otherwise kIo.
#pragma once

#include <string>

#include "coordinator/state/sqlite.h"
#include "libckpt/base/fd.h"

namespace ckpt::coordinator {

class StoreLog {
 public:
  // The log sizes in bytes. From kLogBytes on, the log is copied into the file. From kMaxLogBytes on, the
  // writer waits for the copy.
  static constexpr std::uint64_t kLogBytes = 4 << 20;
  static constexpr std::uint64_t kMaxLogBytes = 16 << 20;

  // Opens the write-ahead log of the store in the file at `path`. The log must exist.
  static Result<StoreLog> open(const std::string& path);

  Result<void> sync();
  void copy_if_large();

 private:
  StoreLog(Database copier, UniqueFd log) : copier_(std::move(copier)), log_(std::move(log)) {}
  // Copies the log into the file. Returns true if all that was in the log at that time was copied.
  Result<bool> copy(const char* mode);

  Database copier_;
  UniqueFd log_;
  bool given_up_ = false;  // true if the kernel may have dropped a part of the log
};

}  // namespace ckpt::coordinator
