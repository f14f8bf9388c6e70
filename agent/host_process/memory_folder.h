// SPDX-License-Identifier: Apache-2.0
// A folder that lies in memory (tmpfs), for CRIU's image: host memory never goes through a disk. Threads:
// any. Ownership: the folder is removed with the object, unless keep() was called. Errors: kNotSupported
// where there is no tmpfs, kOutOfMemory where too little is free.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The tmpfs to use: `wanted` if it is one, else /dev/shm, else /run.
Result<std::string> find_memory_place(const std::string& wanted = "");

class [[nodiscard]] MemoryFolder {
 public:
  // PLACE/gpumigrate-NAME~RANDOM with mode 0700; earlier ones of the same name are removed. Other users may
  // make folders in PLACE, too: none that they make beforehand is in the way. `needed_bytes` must be free
  // there.
  static Result<MemoryFolder> create(const std::string& place, const std::string& name,
                                     std::uint64_t needed_bytes);
  MemoryFolder(MemoryFolder&& other) noexcept;
  MemoryFolder& operator=(MemoryFolder&& other) noexcept;
  ~MemoryFolder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The folder stays; the owner of its path removes it.
  std::string keep() noexcept;

 private:
  explicit MemoryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Removes all folders of this user there whose NAME begins with `begin` and for which `unused` returns true,
// given the rest of NAME. `before` is called with the path of each of them.
void remove_memory_folders(const std::string& place, const std::string& begin,
                           const std::function<bool(const std::string& rest)>& unused,
                           const std::function<void(const std::string& path)>& before = {});

// Removes folders of that NAME and all in them, if they are this user's. No error if there is none.
void remove_memory_folder(const std::string& place, const std::string& name);

}  // namespace ckpt::agent::host
