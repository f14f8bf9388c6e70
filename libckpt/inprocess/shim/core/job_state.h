// SPDX-License-Identifier: Apache-2.0
// The state of the process as a job: why it cannot be moved, and which GPU it is on after a move. A forked
// child has forgotten all of it.
// Threads: any. Ownership: names of functions are string literals. Errors: none.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ckpt::shim {

// The program used `api` (a string literal), which leaves behind what no move can carry. The first name
// stays.
void not_movable(const char* api) noexcept;
// The same for as long as the object lives.
class NotMovable {
 public:
  explicit NotMovable(const char* api) noexcept;
  ~NotMovable();
  NotMovable(const NotMovable&) = delete;
  NotMovable& operator=(const NotMovable&) = delete;

 private:
  const char* api_;
};
// The first such name, if there is one.
[[nodiscard]] std::optional<const char*> reason() noexcept;

// So many bytes of the program's own memory were given to the driver: devices may write them.
void devices_may_write(std::size_t bytes) noexcept;
// All that ever were, since pages that a device has written look like any other.
[[nodiscard]] std::uint64_t bytes_devices_may_write() noexcept;

// How a GPU calls itself. After a move a device of the program is another GPU: questions about its PCI
// address and UUID are answered from here, since the driver's own answers may be those of before.
struct Identity {
  int pci_domain = 0;
  int pci_bus = 0;
  int pci_device = 0;
  std::array<char, 16> uuid{};
};
inline constexpr int kMaxDevices = 64;
// From now on `device` (an ordinal of this process, < kMaxDevices) answers as this GPU; nullopt: as the
// driver does.
void set_identity(CUdevice device, const std::optional<Identity>& identity) noexcept;
[[nodiscard]] std::optional<Identity> identity_of(CUdevice device) noexcept;

// True in a child of fork: it is no rank, every call goes to the real driver as it is, and no hook runs.
[[nodiscard]] bool forgotten() noexcept;
// Calls `forget` in every later child of fork, on its only thread, before fork returns there. It may touch no
// lock that another thread of the parent could have held. At most 16.
void at_fork_child(void (*forget)()) noexcept;

}  // namespace ckpt::shim
