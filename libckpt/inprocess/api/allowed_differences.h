// SPDX-License-Identifier: Apache-2.0
// The differences from the source's names and sizes that a standby with a new program may have. Its node
// passes them in the environment (wire::kAllow...). Without them every name and size must be equal.
// Threads: plain values. Call from_environment() before the program has threads that change the environment.
#pragma once

#include <cstdlib>

namespace ckpt::job {

struct AllowedDifferences {
  bool missing = false;  // allows entries that only the source has, whose content is dropped
  bool is_new = false;   // allows entries that only this instance has, which stay unchanged
  bool changed = false;  // allows entries of a different size, which are treated as missing and new

  [[nodiscard]] static AllowedDifferences from_environment() {
    AllowedDifferences allowed;
    const char* text = std::getenv("CKPT_ALLOWED_DIFFERENCES");
    const int bits = text == nullptr ? 0 : std::atoi(text);
    allowed.missing = (bits & 1) != 0;
    allowed.is_new = (bits & 2) != 0;
    allowed.changed = (bits & 4) != 0;
    return allowed;
  }
};

}  // namespace ckpt::job
