// SPDX-License-Identifier: Apache-2.0
// How communicators begin: from an id, or as children of another one.
//
// Threads: jobs run in the calling thread, in one of their own (groups), or in the background (blocking = 0).
// Errors: NCCL's. A blocking communicator that fails is gone.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

// The current context and its device; without one, the primary context of device 0 becomes current, as NVIDIA's
// runtime does.
ncclResult_t current_device(CUcontext* context, CUdevice* device);

// ncclCommInitRank and its relatives; within the thread's group.
ncclResult_t begin_init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                        const ncclConfig_t* config);

struct ChildRequest {
  bool shrinks = false;
  int color = 0;
  int key = 0;
  std::vector<int> excluded;
};
// ncclCommSplit and ncclCommShrink; within the thread's group.
ncclResult_t begin_child(Communicator* parent, const ChildRequest& request, ncclComm_t* out,
                         const ncclConfig_t* config);

// Steps that both kinds of beginning share.
ncclResult_t listen_for_peers(Communicator* communicator, RankInfo* self);
// The table is there: checks it, connects if NCCL_RUNTIME_CONNECT=0, takes memory and starts the proxy.
ncclResult_t complete(Communicator* communicator, const Limits& limits);
// NCCLSIM_IMPORTS: memory of each rank of this host, imported and kept.
ncclResult_t exchange_imports(Communicator* communicator, const Limits& limits);
// The delay that a fault orders for the begin of a communicator; one without an end ends with `stop` only.
ncclResult_t wait_as_ordered(const Communicator& communicator, const Stop& stop);
Limits limits_of(const Communicator& communicator);

}  // namespace ncclsim
