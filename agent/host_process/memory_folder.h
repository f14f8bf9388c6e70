// SPDX-License-Identifier: Apache-2.0
// A folder in memory (tmpfs) for CRIU's image, so that host memory never reaches a disk.
// Threads: any. Ownership: the destructor removes the folder, unless keep() was called. Errors: kNotSupported
// if there is no tmpfs. kOutOfMemory if too little memory is free.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Returns the tmpfs to use: `wanted` if it is a tmpfs, else /dev/shm, else /run.
Result<std::string> find_memory_place(const std::string& wanted = "");

class [[nodiscard]] MemoryFolder {
 public:
  // Creates PLACE/gpumigrate-NAME~RANDOM with mode 0700, and removes earlier folders of the same NAME. Other
  // users may create folders in PLACE, too, but the random part prevents conflicts with them. PLACE must have
  // `needed_bytes` of free memory.
  static Result<MemoryFolder> create(const std::string& place, const std::string& name,
                                     std::uint64_t needed_bytes);
  MemoryFolder(MemoryFolder&& other) noexcept;
  MemoryFolder& operator=(MemoryFolder&& other) noexcept;
  ~MemoryFolder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Releases the folder to the caller, who must remove the returned path.
  std::string keep() noexcept;

 private:
  explicit MemoryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Removes all folders of this user in `place` whose NAME begins with `begin` and for which `unused` returns
// true. `unused` receives the rest of NAME. `before`, if set, is called with a folder's path before the
// folder is removed.
void remove_memory_folders(const std::string& place, const std::string& begin,
                           const std::function<bool(const std::string& rest)>& unused,
                           const std::function<void(const std::string& path)>& before = {});

// Removes this user's folders with NAME and their contents. A missing folder is not an error.
void remove_memory_folder(const std::string& place, const std::string& name);

}  // namespace ckpt::agent::host
