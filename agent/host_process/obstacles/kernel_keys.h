// SPDX-License-Identifier: Apache-2.0
// Keys that a process stores in the kernel, in a process keyring or a thread keyring. The kernel destroys the
// keys when the process exits, and a restored process has none. The kernel reports only the user as owner.
// Therefore the keys count as the job's if the job is the only job of its user on the node. Keys of a session
// or a user are not checked, because other programs store keys there, too.
// Threads: any. The functions read /proc/keys (use offload()). Errors: none. A kernel without keyrings has no
// keys.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/processes/name_owner.h"

namespace ckpt::agent::host {

// Returns a text for each keyring that contains keys and counts as the job's.
[[nodiscard]] std::vector<std::string> key_rings_of(const NameOwner& owner);

// Returns the numbers of the process keyrings of user `uid` that contain keys, from the text of /proc/keys.
[[nodiscard]] std::vector<std::string> process_keyrings(const std::string& keys, uid_t uid);

}  // namespace ckpt::agent::host
