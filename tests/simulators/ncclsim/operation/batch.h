// SPDX-License-Identifier: Apache-2.0
// The operations of one group on one communicator: their place in pinned memory, and their exchange with the
// peers. Collectives run in order, and then all sends and receives run in parallel.
//
// Threads: one at a time; the communicator's proxy runs the batch. Ownership: the batch owns its blocks.
// Errors: ncclInvalidUsage if ranks disagree about an operation, with both sides in the text; those of
// mesh.h.
#pragma once

#include <memory>
#include <vector>

#include "tests/simulators/ncclsim/operation/staging.h"
#include "tests/simulators/ncclsim/operation/task.h"
#include "tests/simulators/ncclsim/transport/mesh.h"

namespace ncclsim {

// A stream's part of a batch.
struct Part {
  CUstream stream = nullptr;
  std::shared_ptr<Block> block;
};

struct Placed {
  Task task;
  std::size_t part = 0;
  unsigned char* in = nullptr;
  unsigned char* out = nullptr;
  unsigned char* scalar = nullptr;  // host address to which the device's scalar is copied
};

struct Batch {
  std::vector<Part> parts;
  std::vector<Placed> tasks;
};

// A communicator's position in its order of operations.
struct Progress {
  std::uint64_t collectives = 0;
  std::vector<std::uint64_t> sent;      // number of messages sent to each peer
  std::vector<std::uint64_t> received;  // number of messages received from each peer
};

struct World {
  Mesh* mesh = nullptr;
  int rank = 0;
  int ranks = 1;
};

// Allocates a block for each stream and places the tasks in the blocks. The context must be current.
ncclResult_t place(const std::vector<Task>& tasks, CUcontext context, const World& world, Batch* out);
// Runs the batch. The inputs must be present; afterwards the outputs are present.
ncclResult_t run(Batch* batch, const World& world, Progress* progress, const Limits& limits);

}  // namespace ncclsim
