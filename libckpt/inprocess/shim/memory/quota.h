// SPDX-License-Identifier: Apache-2.0
// How much of each device the process has and may have (`run --gpu-memory`).
// Threads: any. Errors: take returns false beyond the quota. Units: bytes of physical memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ckpt::shim {

class Quota {
 public:
  static constexpr int kDevices = 64;

  // 0: no limit.
  explicit Quota(std::uint64_t limit) : limit_(limit) {}
  // The limit that GPUMIGRATE_GPU_MEMORY names in bytes; none if it is not there or no number.
  static std::uint64_t limit_from_environment();

  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] bool take(int device, std::uint64_t bytes);
  void give(int device, std::uint64_t bytes);
  // Names the quota on standard error, once in a process: its program sees an error without a reason.
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
