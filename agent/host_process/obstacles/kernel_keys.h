// SPDX-License-Identifier: Apache-2.0
// Keys that a process keeps in the kernel, in a keyring of its own or of a thread. They end with the process, and a
// restored one has none. The kernel tells no owner but a user: they are the job's where it is the only one of its user on
// the node. Keys of a session or a user are not looked for: others put theirs there, too.
// Threads: any; reads /proc/keys (offload()). Errors: none; without keyrings there are none.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/processes/name_owner.h"

namespace ckpt::agent::host {

// A text for each keyring that holds keys.
[[nodiscard]] std::vector<std::string> key_rings_of(const NameOwner& owner);

// The numbers of that user's process keyrings with keys, by the text of /proc/keys.
[[nodiscard]] std::vector<std::string> process_keyrings(const std::string& keys, uid_t uid);

}  // namespace ckpt::agent::host
