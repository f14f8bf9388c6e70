// SPDX-License-Identifier: Apache-2.0
// The limits that determine which ended entries are kept. A value type; times are in Unix milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace ckpt::coordinator {

struct Retention {
  static constexpr std::size_t kBatch = 500;  // the most rows that one transaction removes

  Retention() = default;
  explicit Retention(std::size_t max_count) : count(max_count) {}
  Retention(std::size_t max_count, std::int64_t older_than_ms) : count(max_count), since_ms(older_than_ms) {}

  std::size_t count = std::numeric_limits<std::size_t>::max();  // the number of the newest entries that are
                                                                // kept
  std::int64_t since_ms = 0;  // entries that ended before this time are removed
  std::int64_t fresh_ms =
      std::numeric_limits<std::int64_t>::max();  // entries that ended after this time stay, because a client
                                                 // may watch them
};

}  // namespace ckpt::coordinator
