// SPDX-License-Identifier: Apache-2.0
// The few file operations that the checkpoint store uses, as an interface. Tests replace them with a double
// that simulates a power failure between any two operations
// (tests/unit/libckpt/store/local/power_cut_files.h). The checkpoint store relies only on these properties:
//   * bytes are on the disk once sync() of their file has returned, in any order and any part before that;
//   * a name (made, renamed, removed) is on the disk once sync_folder() of its folder has returned, before
//     that perhaps;
//   * a rename takes place or does not: no reader ever sees half of it.
//
// Threads: Files is shared and thread-safe. Many threads may call read_at() and expect() of one File at a
// time; one thread may call the other functions. Errors: kNotFound if a name is missing, kRefused if there is
// no space (ENOSPC, EDQUOT, EFBIG), kIo and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::checkpoint_store {

class File {
 public:
  virtual ~File() = default;
  virtual Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) = 0;
  // Returns the number of bytes read, which is less than requested only at the end of the file.
  virtual Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const = 0;
  // Announces that the range will be read soon, so that the disk may begin. It is only a hint.
  virtual void expect(std::uint64_t, std::uint64_t) const {}
  [[nodiscard]] virtual Result<std::uint64_t> size() const = 0;
  virtual Result<void> sync() = 0;
};

// A lock that is held until it is destroyed or its process exits.
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
  // Creates a new, empty file of mode 0600. A file of that name is replaced.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;  // opens a file for reading
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  // Creates a folder with mode 0700. Succeeds if the folder already exists.
  virtual Result<void> make_folder(const std::string& path) = 0;
  virtual Result<void> remove_folder(const std::string& path) = 0;
  // Lists a folder without "." and "..", sorted by name.
  virtual Result<std::vector<FolderEntry>> list(const std::string& path) = 0;
  virtual Result<void> sync_folder(const std::string& path) = 0;
  // Takes a lock. Returns kRefused if another process holds it.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;
};

// Returns the operating system's files.
[[nodiscard]] Files& posix_files();

// Reads a whole file of at most `limit_bytes`. Returns kCorrupt for a longer file, because no file of a
// checkpoint store is that long.
Result<std::vector<std::byte>> read_whole(Files& files, const std::string& path, std::uint64_t limit_bytes);

// Writes the file folder/name. On success the new bytes are on the disk. After an error or a power failure
// the former file may remain. kIo means that it is not known whether the former or the new file is on the
// disk.
Result<void> write_whole(Files& files, const std::string& folder, const std::string& name,
                         std::span<const std::byte> bytes);

// Returns the name that a file has until it is complete.
[[nodiscard]] std::string unfinished(const std::string& name);
[[nodiscard]] bool is_unfinished(const std::string& name);

}  // namespace ckpt::checkpoint_store
