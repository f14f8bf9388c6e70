// SPDX-License-Identifier: Apache-2.0
// Keys that a process keeps in the kernel, in a keyring of its own or of a thread. They end with the process,
// and a restored one has none. The kernel names no owner but a user: the keys are the job's if it is the only
// job of its user on the node. Keys of a session or a user are not looked for: others keep keys there, too.
// Threads: any; reads /proc/keys (offload()). Errors: none; without keyrings there are none.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/processes/name_owner.h"

namespace ckpt::agent::host {

// Returns a text for each keyring that holds keys.
[[nodiscard]] std::vector<std::string> key_rings_of(const NameOwner& owner);

// Returns the numbers of that user's process keyrings with keys, by the text of /proc/keys.
[[nodiscard]] std::vector<std::string> process_keyrings(const std::string& keys, uid_t uid);

}  // namespace ckpt::agent::host
