// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/hotset/hot_set.h"

#include <algorithm>
#include <cmath>

namespace ckpt::examples {

namespace {
constexpr std::uint64_t kLongestRun = 64;
}

HotSet::HotSet(const HotSetOptions& options) : options_(options) {
  if (is_range()) return;
  const auto share =
      static_cast<std::uint64_t>(std::llround(options_.hot * static_cast<double>(options_.pages)));
  const std::uint64_t hot = std::clamp<std::uint64_t>(share, 1, options_.pages);
  if (options_.pattern == Pattern::kStride) {
    choose_stride(hot);
  } else {
    choose_runs(hot);
  }
  if (options_.drift == 0 || hot == options_.pages) {
    options_.drift = 0;
    return;
  }
  left_.assign(options_.pages, 0);
  entered_.assign(list_.size(), 0);
  is_hot_.assign(options_.pages, false);
  for (const std::uint32_t page : list_) is_hot_[page] = true;
}

void HotSet::choose_stride(std::uint64_t hot) {
  const std::uint64_t offset = Random(options_.seed).below(std::max<std::uint64_t>(1, options_.pages / hot));
  list_.reserve(hot);
  for (std::uint64_t i = 0; i < hot; i++) {
    list_.push_back(static_cast<std::uint32_t>(i * options_.pages / hot + offset));
  }
}

// Chooses runs of 1 to 64 pages with random gaps: the cold pages are split at as many random places as there
// are runs.
void HotSet::choose_runs(std::uint64_t hot) {
  Random random(options_.seed);
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t left = hot; left > 0; left -= lengths.back()) {
    lengths.push_back(std::min(left, 1 + random.below(kLongestRun)));
  }
  const std::uint64_t cold = options_.pages - hot;
  std::vector<std::uint64_t> cuts(lengths.size());
  for (std::uint64_t& cut : cuts) cut = random.below(cold + 1);
  std::sort(cuts.begin(), cuts.end());
  list_.reserve(hot);
  for (std::size_t run = 0; run < lengths.size(); run++) {
    for (std::uint64_t i = 0; i < lengths[run]; i++) {
      list_.push_back(static_cast<std::uint32_t>(cuts[run] + list_.size()));
    }
  }
}

bool HotSet::advance(std::uint64_t step) {
  step_ = step;
  if (options_.drift == 0 || step < 2) return false;
  const double per_step = options_.drift * static_cast<double>(list_.size());
  const auto due = [&](std::uint64_t steps) {
    return static_cast<std::uint64_t>(per_step * static_cast<double>(steps));
  };
  const std::uint64_t replaced = due(step) - due(step - 1);
  Random random(options_.seed ^ (step * 0xA24BAED4963EE407ull));
  for (std::uint64_t i = 0; i < replaced; i++) replace_one(random);
  return replaced > 0;
}

void HotSet::catch_up(std::uint64_t step) {
  if (options_.drift == 0) step_ = step;
  while (step_ < step) advance(step_ + 1);
}

void HotSet::replace_one(Random& random) {
  const std::uint64_t slot = random.below(list_.size());
  std::uint64_t page = random.below(options_.pages);
  while (is_hot_[page]) page = (page + 1) % options_.pages;
  const std::uint32_t leaving = list_[slot];
  // A page that entered the set in this very step has not been written in this step.
  if (entered_[slot] < step_) left_[leaving] = version_of(step_ - 1);
  is_hot_[leaving] = false;
  is_hot_[page] = true;
  list_[slot] = static_cast<std::uint32_t>(page);
  entered_[slot] = step_;
}

std::uint64_t HotSet::first() const noexcept {
  return step_ == 0 || !is_range() ? 0 : (step_ - 1) * options_.append_pages % options_.pages;
}

std::uint32_t HotSet::version_of(std::uint64_t step) const noexcept {
  const bool restores = options_.pattern == Pattern::kFlip && step % 2 == 0;
  return restores ? 0 : static_cast<std::uint32_t>(step);
}

std::vector<std::uint32_t> HotSet::versions() const {
  if (!is_range()) {
    std::vector<std::uint32_t> versions = left_;
    versions.resize(options_.pages);
    if (step_ > 0) {
      for (const std::uint32_t page : list_) versions[page] = version_of(step_);
    }
    return versions;
  }
  std::vector<std::uint32_t> versions(options_.pages);
  const std::uint64_t whole = (options_.pages + options_.append_pages - 1) / options_.append_pages;
  for (std::uint64_t step = step_ > whole ? step_ - whole : 1; step <= step_; step++) {
    for (std::uint64_t i = 0; i < options_.append_pages; i++) {
      versions[((step - 1) * options_.append_pages + i) % options_.pages] = version_of(step);
    }
  }
  return versions;
}

}  // namespace ckpt::examples
