// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/batch.h"

namespace ncclsim {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMaxBytes = std::size_t{1} << 36;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t room_for(const Task& task, const World& world) {
  return aligned(task.bytes_in(world.rank, world.ranks)) + aligned(task.bytes_out(world.rank, world.ranks)) +
         (task.reduction.device_scalar != nullptr ? kAlignment : 0);
}

std::size_t part_for(CUstream stream, std::vector<Part>* parts) {
  for (std::size_t i = 0; i < parts->size(); i++) {
    if ((*parts)[i].stream == stream) return i;
  }
  parts->push_back({stream, nullptr});
  return parts->size() - 1;
}

// Returns the next `bytes` of a block, of which `used` bytes are already allocated.
unsigned char* take(const Block& block, std::size_t bytes, std::size_t* used) {
  unsigned char* at = block.data() + *used;
  *used += aligned(bytes);
  return at;
}

}  // namespace

ncclResult_t place(const std::vector<Task>& tasks, CUcontext context, const World& world, Batch* out) {
  std::vector<std::size_t> needed;
  for (const Task& task : tasks) {
    const std::size_t part = part_for(task.stream, &out->parts);
    needed.resize(out->parts.size());
    needed[part] += room_for(task, world);
    NCCLSIM_CHECK(needed[part] <= kMaxBytes, ncclInvalidArgument, "a group of more than %zu bytes",
                  kMaxBytes);
    out->tasks.push_back({task, part});
  }
  for (std::size_t i = 0; i < out->parts.size(); i++) {
    NCCLSIM_TRY(acquire_block(context, needed[i], &out->parts[i].block));
  }
  std::vector<std::size_t> used(out->parts.size());
  for (Placed& placed : out->tasks) {
    const Block& block = *out->parts[placed.part].block;
    std::size_t* given = &used[placed.part];
    placed.in = take(block, placed.task.bytes_in(world.rank, world.ranks), given);
    placed.out = take(block, placed.task.bytes_out(world.rank, world.ranks), given);
    if (placed.task.reduction.device_scalar != nullptr) placed.scalar = take(block, sizeof(Scalar), given);
  }
  return ncclSuccess;
}

}  // namespace ncclsim
