// SPDX-License-Identifier: Apache-2.0
// How communicators end. Each of these waits until no graph has captured operations of the communicator, as
// NCCL does (localPersistentRefs).
//
// Threads: those of the program; finalize and revoke in the background if blocking = 0. Errors: NCCL's.
#pragma once

#include "tests/simulators/ncclsim/comm/communicator.h"

namespace ncclsim {

// Within the thread's group.
ncclResult_t begin_finalize(Communicator* communicator);
ncclResult_t begin_revoke(Communicator* communicator);
// Ends what is outstanding and lets its streams pass; the communicator does no operation any more.
void stop_operations(Communicator* communicator);
// The communicator is gone afterwards, unless they fail.
ncclResult_t destroy(Communicator* communicator);
ncclResult_t abort(Communicator* communicator);

}  // namespace ncclsim
