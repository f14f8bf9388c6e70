// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm/batches.h"

#include "tools/examples/charlm/model.h"

namespace ckpt::examples {

std::vector<std::uint64_t> Batches::next(std::uint64_t text_bytes) {
  const std::uint64_t places = text_bytes - kContext;
  std::vector<std::uint64_t> positions(kBatch);
  for (std::uint64_t b = 0; b < kBatch; b++)
    positions[b] = (position + b * places / kBatch + random.below(places / kBatch + 1)) % places;
  position = (position + kContext) % places;
  return positions;
}

}  // namespace ckpt::examples
