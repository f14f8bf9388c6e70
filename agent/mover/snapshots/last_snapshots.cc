// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/last_snapshots.h"

#include <algorithm>
#include <iterator>

#include "libckpt/base/random.h"

namespace ckpt::mover {
namespace {

// The maximum number of jobs with stored fingerprints. The next snapshot of another job copies everything.
constexpr std::size_t kMaxKept = 64;
// The maximum number of jobs with stored scans. The next snapshot of another job first creates streams and
// lists.
constexpr std::size_t kMaxScans = 4;

}  // namespace

Result<std::unique_ptr<LastSnapshot>> LastSnapshot::create(const Device& device) {
  auto last = std::make_unique<LastSnapshot>();
  track::FingerprintKey key{};
  CKPT_TRYV(fill_random(key));
  last->params = track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks);
  CKPT_TRYV(last->prepare_scan(device));
  return last;
}

Result<void> LastSnapshot::prepare_scan(const Device& device) {
  if (scan) return ok();
  CKPT_TRY(kernels, track::TrackKernels::create(device, params));
  CKPT_TRY(made, WideScan::create(kernels));
  scan = std::move(made);
  return ok();
}

std::unique_ptr<LastSnapshot> LastSnapshots::extract(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Kept& entry) { return entry.key == key; });
  if (found == all_.end()) return nullptr;
  auto last = std::move(found->last);
  all_.erase(found);
  return last;
}

void LastSnapshots::put(const Key& key, std::unique_ptr<LastSnapshot> last) {
  // Evicted records are destroyed without the lock, because the driver is slow.
  std::list<Kept> evicted;
  std::vector<std::unique_ptr<WideScan>> idle;
  const std::lock_guard lock(mutex_);
  for (auto it = all_.begin(); it != all_.end();) {
    const auto next = std::next(it);
    if (it->key == key) evicted.splice(evicted.end(), all_, it);
    it = next;
  }
  all_.push_back(Kept{key, std::move(last)});
  if (all_.size() > kMaxKept) evicted.splice(evicted.end(), all_, all_.begin());
  std::size_t scans = 0;
  for (auto it = all_.rbegin(); it != all_.rend(); ++it)
    if (it->last->scan && ++scans > kMaxScans) idle.push_back(std::move(it->last->scan));
}

std::size_t LastSnapshots::forget(wire::JobId job) {
  std::list<Kept> forgotten;
  const std::lock_guard lock(mutex_);
  for (auto it = all_.begin(); it != all_.end();) {
    const auto next = std::next(it);
    if (it->last->job == job) forgotten.splice(forgotten.end(), all_, it);
    it = next;
  }
  return forgotten.size();
}

}  // namespace ckpt::mover
