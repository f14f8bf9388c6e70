// SPDX-License-Identifier: Apache-2.0
// The operations of one group on one communicator: their place in pinned memory, and how they are done with the
// peers. Collectives come in their order, then all sends and receives side by side.
//
// Threads: one at a time; the communicator's proxy runs it. Ownership: the batch owns its blocks.
// Errors: ncclInvalidUsage where ranks disagree about an operation, with both sides in the text; those of
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
  unsigned char* scalar = nullptr;  // where the device's scalar is copied to
};

struct Batch {
  std::vector<Part> parts;
  std::vector<Placed> tasks;
};

// Where a communicator is in its order of operations.
struct Progress {
  std::uint64_t collectives = 0;
  std::vector<std::uint64_t> sent;      // to each peer
  std::vector<std::uint64_t> received;  // from each peer
};

struct World {
  Mesh* mesh = nullptr;
  int rank = 0;
  int ranks = 1;
};

// Takes a block for each stream and places the tasks in it. The context is current.
ncclResult_t place(const std::vector<Task>& tasks, CUcontext context, const World& world, Batch* out);
// The inputs are there; afterwards the outputs are.
ncclResult_t run(Batch* batch, const World& world, Progress* progress, const Limits& limits);

}  // namespace ncclsim
