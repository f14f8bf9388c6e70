// SPDX-License-Identifier: Apache-2.0
// The process's memory on each device, and its limit (`run --gpu-memory`).
// Threads: any. Errors: take returns false beyond the quota. Units: bytes of physical memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ckpt::shim {

class Quota {
 public:
  static constexpr int kDevices = 64;

  // Creates a quota with this limit; 0 means no limit.
  explicit Quota(std::uint64_t limit) : limit_(limit) {}
  // Returns the limit in bytes from GPUMIGRATE_GPU_MEMORY. Returns no limit if the variable is not set or not
  // a number.
  static std::uint64_t limit_from_environment();

  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] bool reserve(int device, std::uint64_t bytes);
  void give(int device, std::uint64_t bytes);
  // Reports the quota on standard error, once per process, because the program gets an error without a
  // reason.
  void explain(int device, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t used(int device) const;

 private:
  [[nodiscard]] static std::size_t slot(int device) {
    return static_cast<std::size_t>(device < 0 || device >= kDevices ? kDevices : device);
  }
  std::uint64_t limit_;
  std::atomic<bool> explained_{false};
  std::array<std::atomic<std::uint64_t>, kDevices + 1> used_{};
};

}  // namespace ckpt::shim
