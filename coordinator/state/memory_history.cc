// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/memory_history.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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
  // After the clock was set back, values are added to the newest minute.
  if (!minutes_.empty() && minute <= minutes_.back().minute) {
    minutes_.back().bytes = std::max(minutes_.back().bytes, bytes);
    return false;
  }
  minutes_.emplace_back(minute, bytes);
  if (minutes_.size() > kMinutes) minutes_.pop_front();
  return true;
}

void to_json(nlohmann::json& document, const MemoryHistory& memory) {
  nlohmann::json minutes = nlohmann::json::array();
  for (const MemoryMinute& entry : memory.minutes()) minutes.push_back({entry.minute, entry.bytes});
  document = {{"peak", memory.peak()}, {"peak_ms", memory.peak_ms()}, {"minutes", minutes}};
}

void from_json(const nlohmann::json& document, MemoryHistory& memory) {
  std::deque<MemoryMinute> minutes;
  for (const nlohmann::json& entry : document.at("minutes"))
    minutes.emplace_back(entry.at(0).get<std::int64_t>(), entry.at(1).get<std::uint64_t>());
  memory = MemoryHistory::restore(document.at("peak").get<std::uint64_t>(),
                                  document.at("peak_ms").get<std::int64_t>(), minutes);
}

}  // namespace ckpt::coordinator
