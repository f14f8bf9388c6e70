// SPDX-License-Identifier: Apache-2.0
// Inspects the process that keeps an instance from outside, if its socket does not answer. keeper.pid in the
// instance's folder names the process by id and start time. The file is locked while the process lives. The
// folder belongs to the job's user, so the file is trusted only about that user's processes.
// Threads: any. Errors: a process that cannot be inspected counts as alive, because only a proof counts.
#pragma once

#include <string>

namespace ckpt::agent {

// Checks whether a keeper may work in the folder. False proves that no keeper works there or is about to.
[[nodiscard]] bool keeper_may_live(const std::string& folder);

// Sends SIGKILL to the keeper, whose ranks are then killed, too. The exit may take some time, so call
// keeper_may_live() afterwards.
void kill_keeper(const std::string& folder);

}  // namespace ckpt::agent
