// SPDX-License-Identifier: Apache-2.0
// The first settings of a site: the coordinator.toml of `cluster init` and the agent.toml of `node join`. Each starts
// its daemon as it is written, and uses the ports that docs/site/install.md lists.
// Threads: pure functions, but for has_address. Errors: kInvalidArgument naming the address and what it must be.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::cli {

struct CoordinatorSite {
  std::string home;       // the cluster's folder
  std::string authority;  // the folder of ca.pem, ca.key, coordinator.pem and coordinator.key
  std::vector<std::string>
      hosts;  // addresses and names of its machine; without an address: this machine alone
};
[[nodiscard]] std::string coordinator_settings(const CoordinatorSite& site);
// Whether other machines reach a coordinator with these settings.
[[nodiscard]] bool is_reachable(const CoordinatorSite& site);

struct NodeSite {
  std::string node;
  std::string home;
  std::string coordinator;  // where agents reach it
  std::string address;      // of this machine
  std::string folder;       // of ca.pem, node.pem, node.key and agent-token
};
[[nodiscard]] std::string node_settings(const NodeSite& site);

// An IP address that a socket of this machine can be bound to, and that stands for no more than one.
Result<void> has_address(const std::string& address);
// `address` with its host replaced by that of `url` if it stands for all addresses of the coordinator's machine.
[[nodiscard]] std::string reachable_address(const std::string& address, const std::string& url);

}  // namespace ckpt::cli
