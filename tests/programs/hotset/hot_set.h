// SPDX-License-Identifier: Apache-2.0
// The pages that hotset rewrites in each step, and the version of every page afterwards. The options
// determine all of this. So an instance that takes over computes the state from the step alone, independently
// of the moved memory.
// Threads: one. Errors: none; the options are checked before.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/examples/common/random.h"

namespace ckpt::examples {

enum class Pattern { kStride, kRandom, kAppend, kFlip };

struct HotSetOptions {
  Pattern pattern = Pattern::kStride;
  std::uint64_t pages = 0;         // number of pages, below 2^32
  double hot = 0;                  // fraction of hot pages
  double drift = 0;                // fraction of the set that each step replaces
  std::uint64_t append_pages = 0;  // number of pages that a step appends
  std::uint64_t seed = 0;
};

class HotSet {
 public:
  explicit HotSet(const HotSetOptions& options);

  // Advances to step `step` (1, 2, ...), which must be the next step. Returns whether the list of pages has
  // changed.
  bool advance(std::uint64_t step);
  // Computes the state after step `step`, through all steps before it.
  void catch_up(std::uint64_t step);

  // Returns the pages that the current step writes: all of a list (first() is 0), or, when appending, the
  // range [first(), first() + count()) modulo pages.
  [[nodiscard]] const std::vector<std::uint32_t>& list() const noexcept { return list_; }
  [[nodiscard]] bool is_range() const noexcept { return options_.pattern == Pattern::kAppend; }
  [[nodiscard]] std::uint64_t first() const noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept {
    return is_range() ? options_.append_pages : list_.size();
  }

  // Returns the version that step `step` writes: its number, or 0 (the first content) when the step restores
  // the old bytes.
  [[nodiscard]] std::uint32_t version_of(std::uint64_t step) const noexcept;

  // Returns the version of each page after the current step.
  [[nodiscard]] std::vector<std::uint32_t> versions() const;

 private:
  void choose_stride(std::uint64_t hot);
  void choose_runs(std::uint64_t hot);
  void replace_one(Random& random);

  HotSetOptions options_;
  std::uint64_t step_ = 0;
  std::vector<std::uint32_t> list_;
  std::vector<std::uint32_t> left_;     // the version of each page when the page last left the set (only with
                                        // drift)
  std::vector<std::uint64_t> entered_;  // the step in which each slot's page entered the set (only with
                                        // drift)
  std::vector<bool> is_hot_;            // whether each page is in the set; used only with drift
};

}  // namespace ckpt::examples
