// SPDX-License-Identifier: Apache-2.0
// The bytes that a job has in a checkpoint store while a client of a FileServer writes the job's files. The
// sum of the files' lengths is compared with a limit. A file has no holes, so its length is its size on the
// disk.
// Threads: one at a time. Ownership: borrows nothing. Errors: kRefused beyond the limit, kInvalidArgument for
// a hole or too many files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/store/local/files.h"

namespace ckpt::checkpoint_store {

class Quota {
 public:
  // A file and its counted bytes, even after the file was renamed or removed.
  struct Extent {
    std::uint64_t bytes = 0;
  };
  using Handle = std::shared_ptr<Extent>;

  explicit Quota(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Counts the existing files. Call it once the checkpoint store is locked. `folder` is the job's folder.
  Result<void> begin(Files& files, const std::string& folder);
  // Counts a new, empty file. A file of that name is replaced.
  Result<Handle> create(const std::string& path);
  // Counts bytes at that offset, before they are written.
  Result<void> write(const Handle& file, std::uint64_t at, std::uint64_t bytes);
  // Applies the renaming or removal of a file. Returns the file that is thereby replaced or removed, or null
  // if no such file is known.
  Handle rename(const std::string& from, const std::string& to);
  Handle remove(const std::string& path);
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_; }

 private:
  Handle forget(const std::string& path);

  const std::uint64_t limit_;
  std::uint64_t hard_limit_ = 0;  // the limit on the job's size, including the excess that a collection may
                                  // use
  std::uint64_t used_ = 0;
  std::map<std::string, Handle> files_;  // the files by their path in the checkpoint store
};

}  // namespace ckpt::checkpoint_store
