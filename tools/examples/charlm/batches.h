// SPDX-License-Identifier: Apache-2.0
// Places of the text from which a step learns; equal seeds give equal places. Plain data, so that an example
// can register the object as host state.
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/examples/common/random.h"

namespace ckpt::examples {

struct Batches {
  std::uint64_t position = 0;
  Random random{0};

  // Returns kBatch places spread over the text. Each place is shifted randomly, from a position that advances
  // with every step.
  std::vector<std::uint64_t> next(std::uint64_t text_bytes);
};

}  // namespace ckpt::examples
