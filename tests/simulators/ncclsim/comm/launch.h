// SPDX-License-Identifier: Apache-2.0
// Puts the operations of a group on their streams: copy in, notify the proxy, wait for the proxy, copy out.
// On a capturing stream the two middle steps are a host node.
//
// Threads: any; one group of a communicator at a time. Errors: ncclUnhandledCudaError; ncclInvalidUsage for
// operations that NCCL, or this library, does not support.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

// Checks one operation and adds it to the thread's group.
ncclResult_t add_operation(ncclComm_t handle, Task task);
// Launches the operations of a group, all on one communicator.
ncclResult_t launch(Communicator* communicator, const std::vector<Task>& tasks);

}  // namespace ncclsim
