// SPDX-License-Identifier: Apache-2.0
// Pages that hotset rewrites in each step, and the version that every page has after it. All of it follows
// from the options. So an instance that takes over computes it from the step alone, independently of the
// moved memory.
// Threads: one. Errors: none; options are checked before.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/examples/common/random.h"

namespace ckpt::examples {

enum class Pattern { kStride, kRandom, kAppend, kFlip };

struct HotSetOptions {
  Pattern pattern = Pattern::kStride;
  std::uint64_t pages = 0;         // below 2^32
  double hot = 0;                  // share of the pages
  double drift = 0;                // share of the set that each step replaces
  std::uint64_t append_pages = 0;  // pages that a step appends
  std::uint64_t seed = 0;
};

class HotSet {
 public:
  explicit HotSet(const HotSetOptions& options);

  // Goes on to step `step` (1, 2, ...), which follows the last one. Returns whether the list of pages has
  // changed.
  bool advance(std::uint64_t step);
  // The state after step `step`, by way of all steps before it.
  void catch_up(std::uint64_t step);

  // The pages that the current step writes: all of a list (first() is 0), or, when appending, the range
  // [first(), first() + count()) modulo pages.
  [[nodiscard]] const std::vector<std::uint32_t>& list() const noexcept { return list_; }
  [[nodiscard]] bool is_range() const noexcept { return options_.pattern == Pattern::kAppend; }
  [[nodiscard]] std::uint64_t first() const noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept {
    return is_range() ? options_.append_pages : list_.size();
  }

  // The version that step `step` writes: its number, or 0 (the first content) when it restores the old bytes.
  [[nodiscard]] std::uint32_t version_of(std::uint64_t step) const noexcept;

  // The version of each page after the current step.
  [[nodiscard]] std::vector<std::uint32_t> versions() const;

 private:
  void choose_stride(std::uint64_t hot);
  void choose_runs(std::uint64_t hot);
  void replace_one(Random& random);

  HotSetOptions options_;
  std::uint64_t step_ = 0;
  std::vector<std::uint32_t> list_;
  std::vector<std::uint32_t> left_;  // the version each page had when it last left the set (only with drift)
  std::vector<std::uint64_t> entered_;  // the step in which the page of each slot entered (only with drift)
  std::vector<bool> is_hot_;            // only with drift
};

}  // namespace ckpt::examples
