// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/last_snapshots.h"

#include "libckpt/base/random.h"

namespace ckpt::mover {
namespace {

// Beyond it a job's next snapshot copies everything: jobs that ended leave theirs behind.
constexpr std::size_t kMostKept = 64;

}  // namespace

Result<std::unique_ptr<LastSnapshot>> LastSnapshot::create(const Device& device) {
  auto last = std::make_unique<LastSnapshot>();
  track::FingerprintKey key{};
  CKPT_TRYV(fill_random(key));
  last->params = track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks);
  CKPT_TRY(kernels, track::TrackKernels::create(device, last->params));
  CKPT_TRY(scan, WideScan::create(kernels));
  last->scan = std::move(scan);
  return last;
}

std::unique_ptr<LastSnapshot> LastSnapshots::take(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(key);
  if (found == all_.end()) return nullptr;
  auto last = std::move(found->second);
  all_.erase(found);
  return last;
}

void LastSnapshots::put(const Key& key, std::unique_ptr<LastSnapshot> last) {
  const std::lock_guard lock(mutex_);
  if (all_.size() >= kMostKept && !all_.contains(key)) all_.erase(all_.begin());
  all_[key] = std::move(last);
}

}  // namespace ckpt::mover
