// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/torchlike/pinned.h"

#include <algorithm>
#include <bit>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

PinnedCache::~PinnedCache() {
  for (const Block& block : blocks_) {
    cuEventDestroy(block.done);
    cuMemFreeHost(block.at);
  }
}

std::uint64_t* PinnedCache::get(std::uint64_t bytes) {
  bytes = std::bit_ceil(bytes);
  for (Block& block : blocks_) {
    if (block.is_taken || block.bytes != bytes || cuEventQuery(block.done) != CUDA_SUCCESS) continue;
    block.is_taken = true;
    return block.at;
  }
  Block& block = blocks_.emplace_back();
  void* at = nullptr;
  check(cuMemHostAlloc(&at, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  check(cuEventCreate(&block.done, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  block.at = static_cast<std::uint64_t*>(at);
  block.bytes = bytes;
  block.is_taken = true;
  return block.at;
}

void PinnedCache::put(std::uint64_t* memory, CUstream stream) {
  const auto block =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.at == memory; });
  check(cuEventRecord(block->done, stream), "cuEventRecord");
  block->is_taken = false;
}

}  // namespace ckpt::examples
