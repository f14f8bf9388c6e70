// SPDX-License-Identifier: Apache-2.0
// The few file operations that the vault is made of, as an interface. A test replaces them by a double that
// cuts the power between any two of them (tests/unit/libckpt/store/vault/power_cut_files.h). What the vault
// relies on, and nothing more:
//   * bytes are on the disk once sync() of their file has returned, in any order and any part before that;
//   * a name (made, renamed, removed) is on the disk once sync_folder() of its folder has returned, before
//     that perhaps;
//   * a rename takes place or does not: no reader ever sees half of it.
//
// Threads: Files is shared and thread-safe; read_at() and expect() of one File may be called by many threads
// at a time, the rest by one.
// Errors: kNotFound where a name is missing, kRefused where there is no space (ENOSPC, EDQUOT, EFBIG), kIo
// and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::vault {

class File {
 public:
  virtual ~File() = default;
  virtual Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) = 0;
  // Bytes read: fewer than asked for only where the file ends.
  virtual Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const = 0;
  // It will be read soon: the disk may begin with it. A hint, and no more.
  virtual void expect(std::uint64_t, std::uint64_t) const {}
  [[nodiscard]] virtual Result<std::uint64_t> size() const = 0;
  virtual Result<void> sync() = 0;
};

// Held until it is destroyed, or its process ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
  std::uint64_t bytes = 0;
};

class Files {
 public:
  virtual ~Files() = default;
  // A new, empty file of mode 0600; one of that name is replaced.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;  // to read
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  // Mode 0700. One that is there already is fine.
  virtual Result<void> make_folder(const std::string& path) = 0;
  virtual Result<void> remove_folder(const std::string& path) = 0;
  // Without "." and "..", sorted by name.
  virtual Result<std::vector<FolderEntry>> list(const std::string& path) = 0;
  virtual Result<void> sync_folder(const std::string& path) = 0;
  // kRefused if another process holds it.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;
};

// The operating system's.
[[nodiscard]] Files& posix_files();

// The whole file, at most `limit_bytes` (kCorrupt beyond it: no file of a vault is that long).
Result<std::vector<std::byte>> read_whole(Files& files, const std::string& path, std::uint64_t limit_bytes);

// The file folder/name with these bytes is on the disk, or (after an error or a power cut) what was there
// before: kIo where it is not known which.
Result<void> write_whole(Files& files, const std::string& folder, const std::string& name,
                         std::span<const std::byte> bytes);

// The name that a file has until it is whole.
[[nodiscard]] std::string unfinished(const std::string& name);
[[nodiscard]] bool is_unfinished(const std::string& name);

}  // namespace ckpt::vault
