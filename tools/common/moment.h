// SPDX-License-Identifier: Apache-2.0
// Points in time in the form that people write. "10m" is ten minutes ago. "2026-11-24T03:34:31Z" is UTC (RFC
// 3339). A blank may replace the T. Seconds and Z may be omitted.
// Threads: pure functions. Errors: kInvalidArgument with one line that names the text and shows an example.
#pragma once

#include <cstdint>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::tools {

// Parses the text into Unix milliseconds.
Result<std::int64_t> parse_moment_ms(std::string_view text, std::int64_t now_ms);

}  // namespace ckpt::tools
