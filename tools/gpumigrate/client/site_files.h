// SPDX-License-Identifier: Apache-2.0
// The first settings of a site. `cluster init` writes coordinator.toml, and `node join` writes agent.toml. A
// daemon starts with them without edits. They use the ports that docs/site/install.md lists.
// Threads: pure functions, except has_address. Errors: kInvalidArgument, which names the address and its
// form.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::cli {

struct CoordinatorSite {
  std::string home;       // the path of the cluster's folder
  std::string authority;  // the folder with ca.pem, ca.key, coordinator.pem and coordinator.key
  // Addresses and names of the coordinator's machine. Without an address only this machine can reach the
  // coordinator.
  std::vector<std::string> hosts;
};
[[nodiscard]] std::string coordinator_settings(const CoordinatorSite& site);
// Returns whether other machines can reach a coordinator with these settings.
[[nodiscard]] bool is_reachable(const CoordinatorSite& site);

struct NodeSite {
  std::string node;
  std::string home;
  std::string coordinator;  // the address at which agents reach the coordinator
  std::string address;      // the IP address of this machine
  std::string folder;       // the folder of ca.pem, node.pem, node.key and agent-token
};
[[nodiscard]] std::string node_settings(const NodeSite& site);

// Checks that a socket of this machine can be bound to the address, and that the address denotes one machine.
Result<void> has_address(const std::string& address);
// Returns `address`. If it denotes all addresses of the coordinator's machine, its host is replaced by that
// of `url`.
[[nodiscard]] std::string reachable_address(const std::string& address, const std::string& url);

}  // namespace ckpt::cli
