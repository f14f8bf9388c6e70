// SPDX-License-Identifier: Apache-2.0
// Random bytes from the kernel (getrandom): keys and tokens. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt {

Result<void> fill_random(std::span<std::byte> out);

// Returns `bytes` random bytes as lower-case hex digits.
Result<std::string> random_hex(std::size_t bytes);

}  // namespace ckpt
