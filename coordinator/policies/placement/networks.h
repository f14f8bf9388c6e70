// SPDX-License-Identifier: Apache-2.0
// Over which network a job moves between two nodes: the first of the source's that the target has, too, by the
// same name and transport. Address i of one side is paired with address i of the other; what one side has
// more is not used. Pure functions; an agent that names no networks has one that needs no name.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

using DataNetworks = std::vector<wire::DataNetwork>;

struct AddressPair {
  std::string source;
  std::string target;
  friend bool operator==(const AddressPair&, const AddressPair&) = default;
};

struct SharedNetwork {
  std::string name;  // empty: a node names none
  wire::LaneTransport transport = wire::LaneTransport::kInvalid;
  std::vector<AddressPair> paths;
};

// `asked`: only that one; empty: any. kRefused: what each node has.
[[nodiscard]] Result<SharedNetwork> shared_network(const DataNetworks& source, const DataNetworks& target,
                                                   const std::string& asked);

}  // namespace ckpt::coordinator
