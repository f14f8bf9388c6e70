// SPDX-License-Identifier: Apache-2.0
// The networks of agent.toml and the addresses that this machine has.
// Threads: pure but for asking the kernel for its devices. Errors: kInvalidArgument for a device or an address
// that this machine does not have, and for one that its transport cannot use, naming the network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

struct NetworkSettings {
  wire::DataNetwork network;
  std::vector<std::string> devices;  // whose first addresses it has; empty: the network's are given
};

[[nodiscard]] bool is_ip_address(const std::string& text);
// The reason why the transport cannot use the address, and what to give instead; empty: it can.
[[nodiscard]] std::string why_unusable(wire::LaneTransport transport, const std::string& address);
// With brackets around an IPv6 address, as it stands before a port.
[[nodiscard]] std::string host_text(const std::string& address);
// Each with addresses of this machine. Of a device it is the first IPv4 address, or the first IPv6 address that
// is not of the link alone. At least one network: without settings it is "local", TLS on loopback.
Result<std::vector<wire::DataNetwork>> resolve_networks(const std::vector<NetworkSettings>& settings);

}  // namespace ckpt::agent
