// SPDX-License-Identifier: Apache-2.0
// The creation of communicators: from an id, or as children of another communicator.
//
// Threads: jobs run in the calling thread, in their own thread (groups), or in the background (blocking = 0).
// Errors: NCCL's. A blocking communicator that fails is destroyed.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

// Returns the current context and its device. Without a current context, the primary context of device 0
// becomes current, as in NVIDIA's runtime.
ncclResult_t current_device(CUcontext* context, CUdevice* device);

// Begins ncclCommInitRank and its variants, within the thread's group.
ncclResult_t begin_init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                        const ncclConfig_t* config);

struct ChildRequest {
  bool shrinks = false;
  int color = 0;
  int key = 0;
  std::vector<int> excluded;
};
// Begins ncclCommSplit or ncclCommShrink, within the thread's group.
ncclResult_t begin_child(Communicator* parent, const ChildRequest& request, ncclComm_t* out,
                         const ncclConfig_t* config);

// The functions for steps that both kinds of creation share.
ncclResult_t listen_for_peers(Communicator* communicator, RankInfo* self);
// Completes a communicator whose table is filled: checks the table, connects if NCCL_RUNTIME_CONNECT=0,
// allocates memory and starts the proxy.
ncclResult_t complete(Communicator* communicator, const Limits& limits);
// Imports memory of each rank of this host and retains it (NCCLSIM_IMPORTS).
ncclResult_t exchange_imports(Communicator* communicator, const Limits& limits);
// Waits for the delay that a fault orders for the creation of a communicator. An infinite delay ends only
// with `stop`.
ncclResult_t wait_as_ordered(const Communicator& communicator, const Stop& stop);
Limits limits_of(const Communicator& communicator);

}  // namespace ncclsim
