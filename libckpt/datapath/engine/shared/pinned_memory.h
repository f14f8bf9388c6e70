// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for copies to and from a device, on pages as large as the machine allows, all allocated
// from the start. It is in a memory file whose size cannot change. A process of the same machine can
// therefore pin the same pages and copy directly out of them.
//
// Threads: any; the device's context need not be current. Ownership: the Device outlives the memory, and no
// copy uses the memory when it is destroyed. Errors: the driver's, errno; kProtocol for a file from another
// process that is not of this kind.
#pragma once

#include <cstddef>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::engine {

class PinnedMemory {
 public:
  // Makes new memory, filled with zeros. If the driver cannot pin a file's pages, it is the driver's own
  // memory, and file() is -1.
  static Result<PinnedMemory> create(const Device& device, std::size_t bytes);
  // Opens all of the memory behind another process's file(), which must be `bytes` bytes long. The other
  // process may change its content at any time. The memory is mapped writable, because drivers do not pin
  // other pages, but must not be written.
  static Result<PinnedMemory> open(const Device& device, UniqueFd file, std::size_t bytes);

  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_, bytes_}; }
  // Returns the file for open() in another process. This object owns it.
  [[nodiscard]] int file() const noexcept { return file_.get(); }

 private:
  PinnedMemory(const Device& device, std::byte* memory, std::size_t bytes, UniqueFd file)
      : device_(&device), memory_(memory), bytes_(bytes), file_(std::move(file)) {}
  static Result<PinnedMemory> create_in_file(const Device& device, std::size_t bytes);
  static Result<PinnedMemory> map(const Device& device, UniqueFd file, std::size_t bytes);

  const Device* device_;
  std::byte* memory_;
  std::size_t bytes_;
  UniqueFd file_;  // the memory file; empty if the memory is the driver's own
};

}  // namespace ckpt::engine
