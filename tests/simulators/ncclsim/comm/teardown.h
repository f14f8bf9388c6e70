// SPDX-License-Identifier: Apache-2.0
// The end of communicators. Each function waits until no graph has captured operations of the communicator,
// as NCCL does (localPersistentRefs).
//
// Threads: the program's; finalize and revoke in the background if blocking = 0. Errors: NCCL's.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

// Begins a finalize or a revoke within the thread's group.
ncclResult_t begin_finalize(Communicator* communicator);
ncclResult_t begin_revoke(Communicator* communicator);
// Ends outstanding operations and unblocks their streams. The communicator runs no further operation.
void stop_operations(Communicator* communicator);
// Destroys the communicator, as abort() does. On failure the communicator still exists.
ncclResult_t destroy(Communicator* communicator);
ncclResult_t abort(Communicator* communicator);

}  // namespace ncclsim
