// SPDX-License-Identifier: Apache-2.0
// The host state that a program has named: fixed memory, and save and load callbacks.
// Threads: no lock inside. Callbacks run without the session's lock, and the session ensures that nothing
// changes meanwhile. Errors: kInvalidArgument, kRefused (too much), kCorrupt / kRefused from apply, naming
// the entry.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/api/allowed_differences.h"
#include "libckpt/inprocess/api/state_image.h"

namespace ckpt::job {

class HostStates {
 public:
  Result<void> add_memory(std::string name, void* pointer, std::uint64_t bytes);
  Result<void> add_callbacks(std::string name, ckpt_save_fn save, ckpt_load_fn load, void* user);

  [[nodiscard]] std::uint64_t fixed_bytes() const { return fixed_bytes_; }

  // Runs the save callbacks and appends one entry for each name.
  Result<void> plan(std::vector<PlannedEntry>& entries) const;

  // Checks an image. Returns kRefused with the entry's name if names or sizes differ between `image` and this
  // instance. Writes nothing.
  Result<void> check(const StateImage& image, const AllowedDifferences& allowed = {}) const;
  // Writes memory and runs the load callbacks. Call it after check().
  Result<void> apply(const StateImage& image) const;

 private:
  struct Memory {
    void* pointer;
    std::uint64_t bytes;
  };
  struct Callbacks {
    ckpt_save_fn save;
    ckpt_load_fn load;
    void* user;
  };
  Result<void> check_new(const std::string& name) const;

  std::map<std::string, Memory> memory_;
  std::map<std::string, Callbacks> callbacks_;
  std::uint64_t fixed_bytes_ = 0;
};

// Returns true while a save or load callback runs on this thread. A callback must not call the session, which
// would wait for itself.
[[nodiscard]] bool in_callback() noexcept;

}  // namespace ckpt::job

struct ckpt_writer {
  std::vector<std::byte> bytes;
};
