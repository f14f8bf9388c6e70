// SPDX-License-Identifier: Apache-2.0
// The process that keeps an instance, seen from outside when its socket does not answer. keeper.pid in the
// instance's folder names it by id and start time, and is locked while it lives. The folder is the job's
// user's, so the file is trusted only about that user's processes.
// Threads: any. Errors: a process that cannot be inspected counts as alive: only proof is proof.
#pragma once

#include <string>

namespace ckpt::agent {

// False is proof that no keeper works in the folder, nor is about to.
[[nodiscard]] bool keeper_may_live(const std::string& folder);

// SIGKILL to the keeper; its ranks go with it. It may take a moment: ask keeper_may_live().
void kill_keeper(const std::string& folder);

}  // namespace ckpt::agent
