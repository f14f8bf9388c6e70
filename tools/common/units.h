// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and shares as people write them, parsed strictly. A unit is required where a bare number
// would be ambiguous. Nothing may follow it, and values that do not fit are refused. Shared by the CLI and
// the examples.
// Threads: pure functions. Errors: kInvalidArgument with one line that names the text and gives an example.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::tools {

// "4096", "4096B", "256KiB", "1.5GiB", "2GB": bytes. KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB of
// 1000.
Result<std::uint64_t> parse_size(std::string_view text);

// "10GiB/s": bytes per second.
Result<std::uint64_t> parse_rate(std::string_view text);

// "200ms", "1.5s", "10m", "2h", "50us": nanoseconds. A bare "0" is allowed.
Result<std::int64_t> parse_duration_ns(std::string_view text);

// "2%" or "0.5%", from 0 to 100: a share between 0 and 1.
Result<double> parse_share(std::string_view text);

// "1.50 GiB", "312 B".
std::string format_bytes(double bytes);

// Milliseconds in the unit that reads best: "12.4 ms", "3.2 s", "4m10s".
std::string format_milliseconds(double milliseconds);

}  // namespace ckpt::tools
