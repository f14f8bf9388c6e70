// SPDX-License-Identifier: Apache-2.0
// Owned file descriptors and the few whole-file operations the project needs. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "libckpt/base/handle.h"
#include "libckpt/base/result.h"

namespace ckpt {

struct FdTraits {
  using Value = int;
  static constexpr int kNull = -1;
  static void close(int fd) noexcept;
};
using UniqueFd = UniqueHandle<FdTraits>;

// Writes all bytes, continuing after short writes and EINTR.
Result<void> write_all(int fd, std::span<const std::byte> bytes);

// Returns the whole file, at most `limit_bytes`. Returns kRefused for a longer file.
Result<std::string> read_file(const std::string& path, std::size_t limit_bytes);

// Writes `text` to a temporary file in the same folder, fsyncs it, renames it over `path`, and fsyncs the
// folder.
Result<void> write_file_durably(const std::string& path, std::string_view text, unsigned mode = 0600);

// Creates an anonymous memory file (memfd) of `bytes` bytes with a sealed size, for passing data between
// processes.
Result<UniqueFd> make_memory_file(const char* name, std::size_t bytes);

}  // namespace ckpt
