// SPDX-License-Identifier: Apache-2.0
// Points in time as people write them. "10m" is ten minutes ago. "2026-11-24T03:34:31Z" is UTC (RFC 3339). A
// blank may replace the T; seconds and Z may be left out.
// Threads: pure functions. Errors: kInvalidArgument with one line that names the text and gives an example.
#pragma once

#include <cstdint>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::tools {

// Unix milliseconds.
Result<std::int64_t> parse_moment_ms(std::string_view text, std::int64_t now_ms);

}  // namespace ckpt::tools
