// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and shares in the form that people write, parsed strictly. A unit is required where a bare
// number would be ambiguous. No text may follow the unit, and values that do not fit are refused. The CLI and
// the examples share these functions.
// Threads: pure functions. Errors: kInvalidArgument with one line that names the text and shows an example.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::tools {

// Parses "4096", "4096B", "256KiB", "1.5GiB" or "2GB" into bytes. KiB, MiB, GiB, TiB are powers of 1024; KB,
// MB, GB, TB are powers of 1000.
Result<std::uint64_t> parse_size(std::string_view text);

// Parses "10GiB/s" into bytes per second.
Result<std::uint64_t> parse_rate(std::string_view text);

// Parses "200ms", "1.5s", "10m", "2h" or "50us" into nanoseconds. A bare "0" is permitted.
Result<std::int64_t> parse_duration_ns(std::string_view text);

// Parses "2%" or "0.5%", from 0 to 100, into a share between 0 and 1.
Result<double> parse_share(std::string_view text);

// Formats bytes: "1.50 GiB", "312 B".
std::string format_bytes(double bytes);

// Formats milliseconds in the most readable unit: "12.4 ms", "3.2 s", "4m10s".
std::string format_milliseconds(double milliseconds);

}  // namespace ckpt::tools
