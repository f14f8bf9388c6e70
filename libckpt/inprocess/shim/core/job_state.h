// SPDX-License-Identifier: Apache-2.0
// The state of the process as a job: why it cannot be moved, and its GPU after a move. A forked child loses
// all of this state.
// Threads: any. Ownership: names of functions are string literals. Errors: none.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ckpt::shim {

// Notes that the program used `api` (a string literal), which leaves state that no move can carry. Only the
// first name is kept.
void not_movable(const char* api) noexcept;
// A temporary not_movable(): the job cannot move while the object exists.
class NotMovable {
 public:
  explicit NotMovable(const char* api) noexcept;
  ~NotMovable();
  NotMovable(const NotMovable&) = delete;
  NotMovable& operator=(const NotMovable&) = delete;

 private:
  const char* api_;
};
// Returns the name of a function that keeps the job from moving: the first permanent one, else a temporary
// one. Returns nullopt if there is none.
[[nodiscard]] std::optional<const char*> reason() noexcept;

// Notes that this many bytes of the program's own memory were passed to the driver: devices may write them.
void devices_may_write(std::size_t bytes) noexcept;
// Returns the total of all bytes ever passed to devices, because written pages cannot be distinguished from
// others.
[[nodiscard]] std::uint64_t bytes_devices_may_write() noexcept;

// The identity of a GPU. After a move, a device of the program is a different GPU. Queries for its PCI
// address and UUID are answered from this data, since the driver's own answers may be the old ones.
struct Identity {
  int pci_domain = 0;
  int pci_bus = 0;
  int pci_device = 0;
  std::array<char, 16> uuid{};
};
inline constexpr int kMaxDevices = 64;
// Sets the GPU as which `device` (an ordinal of this process, < kMaxDevices) answers from now on. With
// nullopt, the driver's own answers are used.
void set_identity(CUdevice device, const std::optional<Identity>& identity) noexcept;
[[nodiscard]] std::optional<Identity> identity_of(CUdevice device) noexcept;

// Returns true in a child of fork. Such a child is not a rank: every call goes to the real driver unchanged,
// and no hook runs.
[[nodiscard]] bool forgotten() noexcept;
// Calls `forget` in every later child of fork, on its only thread, before fork returns there. `forget` may
// use no lock that another thread of the parent could have held. At most 16 functions.
void at_fork_child(void (*forget)()) noexcept;

}  // namespace ckpt::shim
