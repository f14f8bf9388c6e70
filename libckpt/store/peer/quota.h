// SPDX-License-Identifier: Apache-2.0
// The bytes that a job has in a vault while a client of a FileServer writes it: the lengths of its files, against a limit. A file
// has no holes, so that its length is what it takes.
// Threads: one at a time. Ownership: borrows nothing. Errors: kRefused beyond the limit, kInvalidArgument for a hole or
// too many files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/store/vault/files.h"

namespace ckpt::vault {

class Quota {
 public:
  // A file, also where its name has changed or gone.
  struct Extent {
    std::uint64_t bytes = 0;
  };
  using Handle = std::shared_ptr<Extent>;

  explicit Quota(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Counts the files when the vault has been locked; `folder` is the job's.
  Result<void> begin(Files& files, const std::string& folder);
  // Empty from now on; one of that name is replaced.
  Result<Handle> create(const std::string& path);
  // Bytes at that place, before they are written.
  Result<void> write(const Handle& file, std::uint64_t at, std::uint64_t bytes);
  // The file that had that name and has gone; null: none is known.
  Handle rename(const std::string& from, const std::string& to);
  Handle remove(const std::string& path);
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_; }

 private:
  Handle forget(const std::string& path);

  const std::uint64_t limit_;
  std::uint64_t most_ = 0;  // with what a collection may have beyond the limit
  std::uint64_t used_ = 0;
  std::map<std::string, Handle> files_;  // by path in the vault
};

}  // namespace ckpt::vault
