// SPDX-License-Identifier: Apache-2.0
// The network over which a job moves between two nodes. It is the first network of the source that the target
// also has, with the same name and transport. Address i of one side is paired with address i of the other.
// Surplus addresses of one side are not used. Pure functions. An agent that names no networks has one
// network, which needs no name.
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
  std::string name;  // the network's name; empty: a node names no network
  wire::LaneTransport transport = wire::LaneTransport::kInvalid;
  std::vector<AddressPair> paths;
};

// Returns the network that both nodes have. `asked` restricts the choice to one name; an empty text permits
// any network. Returns kRefused with the networks of each node if there is none.
[[nodiscard]] Result<SharedNetwork> shared_network(const DataNetworks& source, const DataNetworks& target,
                                                   const std::string& asked);

}  // namespace ckpt::coordinator
