// SPDX-License-Identifier: Apache-2.0
// The device memory that a job or GPU used: the current value, the peak, and the maximum of each minute in
// the last hour. A value type; times are in Unix milliseconds. Limited to kMinutes entries.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>

namespace ckpt::coordinator {

struct MemoryMinute {
  MemoryMinute() = default;
  MemoryMinute(std::int64_t number, std::uint64_t max_bytes) : minute(number), bytes(max_bytes) {}
  friend bool operator==(const MemoryMinute&, const MemoryMinute&) = default;
  std::int64_t minute = 0;  // the number of the minute since 1970
  std::uint64_t bytes = 0;  // the most memory used in the minute
};

class MemoryHistory {
 public:
  static constexpr std::size_t kMinutes = 60;

  MemoryHistory() = default;
  // Restores a history from stored values. Entries that are out of order are left out.
  static MemoryHistory restore(std::uint64_t peak, std::int64_t peak_ms,
                               const std::deque<MemoryMinute>& minutes);

  // Records that `bytes` are in use at `time_ms`. Returns true if the history is worth storing: a new minute,
  // or a new peak.
  bool add(std::int64_t time_ms, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t now() const { return now_; }  // returns 0 until the first add()
  [[nodiscard]] std::uint64_t peak() const { return peak_; }
  [[nodiscard]] std::int64_t peak_ms() const { return peak_ms_; }
  [[nodiscard]] const std::deque<MemoryMinute>& minutes() const {
    return minutes_;
  }  // returns the minutes, oldest first; there may be gaps

  friend bool operator==(const MemoryHistory&, const MemoryHistory&) = default;
  // Converts the history to its form in documents. Reading throws nlohmann's exceptions.
  friend void to_json(nlohmann::json& document, const MemoryHistory& memory);
  friend void from_json(const nlohmann::json& document, MemoryHistory& memory);

 private:
  bool add_minute(std::int64_t minute, std::uint64_t bytes);

  std::uint64_t now_ = 0;
  std::uint64_t peak_ = 0;
  std::int64_t peak_ms_ = 0;
  std::deque<MemoryMinute> minutes_;
};

}  // namespace ckpt::coordinator
