// SPDX-License-Identifier: Apache-2.0
// This process's states as seen by cuCheckpointProcess*. Running. Locked: its calls wait at the gate, nothing
// is in flight. Checkpointed: no executor, no card, no descriptor and no shared memory is left; their content
// is in private memory. checkpoint_context.cc and checkpoint_memory.cc have what contexts and memory do for
// it.
//
// Threads: obey() is called by one thread, the one that takes orders. Errors: CUresult.
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
  // A restore has failed halfway: as with the real driver the state stays, no restore works any more, and
  // nothing but the end of the process helps.
  bool broken_ = false;
};

}  // namespace cudasim
