// SPDX-License-Identifier: Apache-2.0
// This process's states as seen by cuCheckpointProcess*: running, locked and checkpointed. In the locked
// state, calls wait at the gate, and no work is in flight. In the checkpointed state, no executor, card,
// descriptor or shared memory is left, and their content is in private memory. checkpoint_context.cc and
// checkpoint_memory.cc implement the checkpoint of contexts and memory.
//
// Threads: only the thread that takes orders calls obey(). Errors: CUresult.
#pragma once

#include <cuda.h>

#include <vector>

#include "tests/simulators/cudasim/driver/gate.h"
#include "tests/simulators/cudasim/protocol/order.h"

namespace cudasim {

class Checkpoint {
 public:
  static Checkpoint& get();

  OrderReply obey(const Order& order);

 private:
  CUresult lock(unsigned timeout_ms);
  CUresult checkpoint();
  CUresult restore(const Order& order);
  CUresult unlock();
  void give_up();

  CUprocessState state_ = CU_PROCESS_STATE_RUNNING;
  // A restore has failed halfway. As with the real driver, the state remains unchanged and every further
  // restore fails until the process exits.
  bool broken_ = false;
};

}  // namespace cudasim
