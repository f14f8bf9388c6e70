// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/optional_text.h"

#include <fmt/chrono.h>

namespace ckpt::coordinator {

std::string time_text(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), unix_ms % 1000);
}

}  // namespace ckpt::coordinator
