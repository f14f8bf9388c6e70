// SPDX-License-Identifier: Apache-2.0
// How much device memory something (a job, a GPU) held: now, at most, and by the minute for the last hour. A
// value type; times are Unix milliseconds. Bounded: kMinutes entries.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>

namespace ckpt::coordinator {

struct MemoryMinute {
  MemoryMinute() = default;
  MemoryMinute(std::int64_t number, std::uint64_t max_bytes) : minute(number), bytes(max_bytes) {}
  friend bool operator==(const MemoryMinute&, const MemoryMinute&) = default;
  std::int64_t minute = 0;  // since 1970
  std::uint64_t bytes = 0;  // the most that was held in it
};

class MemoryHistory {
 public:
  static constexpr std::size_t kMinutes = 60;

  MemoryHistory() = default;
  // As it was stored; entries out of order are left out.
  static MemoryHistory restore(std::uint64_t peak, std::int64_t peak_ms,
                               const std::deque<MemoryMinute>& minutes);

  // `bytes` are held at `time_ms`. True if it is worth storing: a new minute, or a new peak.
  bool add(std::int64_t time_ms, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t now() const { return now_; }  // 0 until the first add()
  [[nodiscard]] std::uint64_t peak() const { return peak_; }
  [[nodiscard]] std::int64_t peak_ms() const { return peak_ms_; }
  [[nodiscard]] const std::deque<MemoryMinute>& minutes() const {
    return minutes_;
  }  // oldest first; may have gaps

  friend bool operator==(const MemoryHistory&, const MemoryHistory&) = default;
  // Its form in documents; reading throws nlohmann's exceptions.
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
