// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/memory_history.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMinuteMs = 60'000;

}  // namespace

MemoryHistory MemoryHistory::restore(std::uint64_t peak, std::int64_t peak_ms,
                                     const std::deque<MemoryMinute>& minutes) {
  MemoryHistory history;
  for (const MemoryMinute& entry : minutes) {
    if (history.minutes_.empty() || entry.minute > history.minutes_.back().minute)
      history.add_minute(entry.minute, entry.bytes);
  }
  history.peak_ = peak;
  history.peak_ms_ = peak_ms;
  return history;
}

bool MemoryHistory::add(std::int64_t time_ms, std::uint64_t bytes) {
  now_ = bytes;
  const bool higher = bytes > peak_;
  if (higher) {
    peak_ = bytes;
    peak_ms_ = time_ms;
  }
  const bool begun = add_minute(time_ms / kMinuteMs, bytes);
  return higher || begun;
}

bool MemoryHistory::add_minute(std::int64_t minute, std::uint64_t bytes) {
  // A clock that was set back goes on in the minute it was in.
  if (!minutes_.empty() && minute <= minutes_.back().minute) {
    minutes_.back().bytes = std::max(minutes_.back().bytes, bytes);
    return false;
  }
  minutes_.emplace_back(minute, bytes);
  if (minutes_.size() > kMinutes) minutes_.pop_front();
  return true;
}

}  // namespace ckpt::coordinator
