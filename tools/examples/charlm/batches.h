// SPDX-License-Identifier: Apache-2.0
// Places of the text that a step learns from: equal seeds give equal places. Plain data, so that an example
// can register it as host state. Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/examples/common/random.h"

namespace ckpt::examples {

struct Batches {
  std::uint64_t position = 0;
  Random random{0};

  // kBatch places spread over the text, each moved by chance, from a position that walks on with every step.
  std::vector<std::uint64_t> next(std::uint64_t text_bytes);
};

}  // namespace ckpt::examples
