// SPDX-License-Identifier: Apache-2.0
// Over which network a job moves between two nodes: the first of the source's that the target has, too, by the
// same name and transport. Pure functions; an agent that names no networks has one that needs no name.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

using DataNetworks = std::vector<wire::DataNetwork>;

// `asked`: only that one; empty: any. The network as the source has it. kRefused: what each node has.
[[nodiscard]] Result<wire::DataNetwork> shared_network(const DataNetworks& source, const DataNetworks& target,
                                                       const std::string& asked);

}  // namespace ckpt::coordinator
