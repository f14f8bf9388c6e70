// SPDX-License-Identifier: Apache-2.0
// The project's clock: CLOCK_BOOTTIME in nanoseconds. It continues during suspend (leases expire by it,
// SW-11) and is the same for all processes of a node. Times of two nodes are compared only after subtracting
// a measured offset.
#pragma once

#include <cstdint>

namespace ckpt {

using Nanos = std::int64_t;  // a point on CLOCK_BOOTTIME or a duration, depending on the variable's name

inline constexpr Nanos kNanosPerMs = 1'000'000;

[[nodiscard]] Nanos now_ns() noexcept;
[[nodiscard]] std::int64_t wall_clock_ms() noexcept;  // returns the Unix time, for people and logs only

}  // namespace ckpt
