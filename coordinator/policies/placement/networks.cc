// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/networks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ckpt::coordinator {
namespace {

const wire::DataNetwork* find(const DataNetworks& networks, const std::string& name) {
  const auto at = std::find_if(networks.begin(), networks.end(),
                               [&](const wire::DataNetwork& network) { return network.name == name; });
  return at == networks.end() ? nullptr : &*at;
}

// Returns the networks as text: "data (tls), storage (ucx-trusted)".
std::string list(const DataNetworks& networks) {
  std::vector<std::string> names;
  for (const wire::DataNetwork& network : networks)
    names.push_back(fmt::format("{} ({})", network.name, wire::to_string(network.transport)));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<AddressPair> paired(const std::vector<std::string>& source,
                                const std::vector<std::string>& target) {
  std::vector<AddressPair> pairs;
  for (std::size_t i = 0; i < std::min(source.size(), target.size()); ++i)
    pairs.push_back({source[i], target[i]});
  return pairs;
}

}  // namespace

Result<SharedNetwork> shared_network(const DataNetworks& source, const DataNetworks& target,
                                     const std::string& asked) {
  if (source.empty() || target.empty()) return SharedNetwork();
  for (const wire::DataNetwork& network : source) {
    if (!asked.empty() && network.name != asked) continue;
    const wire::DataNetwork* other = find(target, network.name);
    if (other != nullptr && other->transport == network.transport)
      return SharedNetwork{network.name, network.transport, paired(network.addresses(), other->addresses())};
  }
  if (asked.empty())
    return Error(ErrorCode::kRefused, "the nodes have no common network: the target has " + list(target) +
                                          ", but the source has " + list(source));
  return Error(ErrorCode::kRefused, "network " + asked + " is not on both nodes: the target has " +
                                        list(target) + ", but the source has " + list(source));
}

}  // namespace ckpt::coordinator
