// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for copies to and from a device, on pages as large as the machine gives, all of them
// there from the start. It lies in a memory file whose size cannot change. So a process of the same machine
// can pin the same pages and copy straight out of them.
//
// Threads: any; the device's context need not be current. Ownership: the Device outlives it; no copy uses it
// any more when it goes. Errors: the driver's, errno; kProtocol for a file that another process gave and that
// is none of this kind.
#pragma once

#include <cstddef>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::engine {

class PinnedMemory {
 public:
  // New memory, zero. Where the driver does not pin a file's pages it is the driver's own memory, and file()
  // is -1.
  static Result<PinnedMemory> create(const Device& device, std::size_t bytes);
  // All of the memory behind another's file(), which has to be `bytes` bytes long. The other process may
  // change what is in it at any time. Mapped writable, since drivers pin no other pages; they are not to be
  // written.
  static Result<PinnedMemory> open(const Device& device, UniqueFd file, std::size_t bytes);

  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_, bytes_}; }
  // For open() in another process; this one's.
  [[nodiscard]] int file() const noexcept { return file_.get(); }

 private:
  PinnedMemory(const Device& device, std::byte* memory, std::size_t bytes, UniqueFd file)
      : device_(&device), memory_(memory), bytes_(bytes), file_(std::move(file)) {}
  static Result<PinnedMemory> create_in_file(const Device& device, std::size_t bytes);
  static Result<PinnedMemory> map(const Device& device, UniqueFd file, std::size_t bytes);

  const Device* device_;
  std::byte* memory_;
  std::size_t bytes_;
  UniqueFd file_;  // none: the driver's memory
};

}  // namespace ckpt::engine
