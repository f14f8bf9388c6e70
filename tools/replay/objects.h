// SPDX-License-Identifier: Apache-2.0
// The replay's own handles and addresses in place of those of the traced program.
// Threads: one at a time. Ownership: host memory that stands in for the program's own; the driver's objects end with
// the process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace ckpt::replay {

class Objects {
 public:
  // A handle of the program's, or what stands for a special one (0, the default streams): itself.
  [[nodiscard]] std::uint64_t handle(std::uint64_t traced) const;
  void learn_handle(std::uint64_t traced, std::uint64_t own);

  // An address, also one within a range, of device memory or of host memory that the driver knows.
  [[nodiscard]] std::optional<std::uint64_t> address(std::uint64_t traced) const;
  // A range of the program's; what overlapped it is gone.
  void learn_range(std::uint64_t traced, std::uint64_t own, std::uint64_t bytes);
  // The range with that address is not the program's any more.
  void forget_range(std::uint64_t traced);
  // Notes an object that a left-out call had made: calls that need the object are left out, too.
  void miss(std::uint64_t traced);
  [[nodiscard]] bool is_missing(std::uint64_t traced) const;
  // Host memory of our own for a range of the program's. Null without memory.
  void* make_host_range(std::uint64_t traced, std::uint64_t bytes);

  // Memory that stands for what the program copied from or to: never less than `bytes`. Null beyond kMaxScratch.
  void* scratch(std::uint64_t bytes);

 private:
  struct Range {
    std::uint64_t bytes = 0;
    std::uint64_t own = 0;
  };
  struct Freed {
    void operator()(void* memory) const;
  };
  using Host = std::unique_ptr<void, Freed>;
  static Host allocate(std::uint64_t bytes);

  std::unordered_map<std::uint64_t, std::uint64_t> handles_;
  std::map<std::uint64_t, Range> ranges_;  // by the program's first byte
  std::unordered_set<std::uint64_t> missing_;
  std::vector<Host> hosts_;
  Host scratch_;
  std::uint64_t scratch_bytes_ = 0;
  std::vector<Host> smaller_scratches_;  // copies that are under way may use them
};

inline constexpr std::uint64_t kMaxScratch = std::uint64_t{1} << 30;

}  // namespace ckpt::replay
