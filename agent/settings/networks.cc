// SPDX-License-Identifier: Apache-2.0
#include "agent/settings/networks.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ckpt::agent {
namespace {

struct DeviceAddress {
  std::string device;
  std::string address;
  bool ipv6 = false;
};

// Returns the text of an IP address. The result is empty for other families, and for link-local addresses,
// which have no meaning on other machines.
std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size()) == nullptr ? "" : text.data();
  }
  if (address->sa_family != AF_INET6) return {};
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return {};
  return ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size()) == nullptr ? "" : text.data();
}

// Returns the addresses, with IPv4 addresses first.
Result<std::vector<DeviceAddress>> addresses_of_this_machine() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Error::from_errno("Cannot list the network devices");
  std::vector<DeviceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string text = text_of(entry->ifa_addr);
    if (!text.empty()) found.push_back({entry->ifa_name, text, entry->ifa_addr->sa_family == AF_INET6});
  }
  ::freeifaddrs(list);
  std::stable_partition(found.begin(), found.end(), [](const DeviceAddress& at) { return !at.ipv6; });
  return found;
}

// Returns the same text for an address, whatever form it was written in.
std::string normal_form(const std::string& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return address;
  return ::inet_ntop(AF_INET6, &v6, text.data(), text.size()) == nullptr ? address : text.data();
}

// Returns the addresses in the settings' order.
Result<std::vector<std::string>> addresses_of(const NetworkSettings& wanted,
                                              const std::vector<DeviceAddress>& known) {
  const auto bad = [&](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument, "Network " + wanted.network.name + ": " + what);
  };
  std::vector<std::string> addresses;
  const auto take = [&](auto&& is_meant, const std::string& missing) -> Result<void> {
    const auto found = std::find_if(known.begin(), known.end(), is_meant);
    if (found == known.end()) return bad(missing);
    if (std::find(addresses.begin(), addresses.end(), found->address) != addresses.end())
      return bad("the address " + found->address + " is named twice");
    const std::string unusable = why_unusable(wanted.network.transport, found->address);
    if (!unusable.empty()) return bad(unusable);
    addresses.push_back(found->address);
    return ok();
  };
  for (const std::string& device : wanted.devices) {
    CKPT_TRYV(
        take([&](const DeviceAddress& at) { return at.device == device; },
             "this machine has no device " + device + " with an address that other machines can reach"));
  }
  if (!wanted.devices.empty()) return addresses;
  for (const std::string& given : wanted.network.addresses()) {
    const std::string address = normal_form(given);
    CKPT_TRYV(take([&](const DeviceAddress& at) { return at.address == address; },
                   "no device of this machine has the address " + address));
  }
  return addresses;
}

}  // namespace

bool is_ip_address(const std::string& text) {
  in6_addr room{};
  return ::inet_pton(AF_INET, text.c_str(), &room) == 1 || ::inet_pton(AF_INET6, text.c_str(), &room) == 1;
}

std::string why_unusable(wire::LaneTransport transport, const std::string& address) {
  if (transport == wire::LaneTransport::kTls || address.find(':') == std::string::npos) return {};
  if (transport == wire::LaneTransport::kRdmaTrusted)
    return "rdma-trusted was not tested with IPv6 (" + address + "); give the IPv4 address of that device";
  if (normal_form(address) == "::1")
    return "UCX cannot use IPv6 on loopback (::1); give 127.0.0.1, or transport = \"tls\"";
  return {};
}

std::string host_text(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

Result<std::vector<wire::DataNetwork>> resolve_networks(const std::vector<NetworkSettings>& settings) {
  std::vector<wire::DataNetwork> networks;
  if (settings.empty()) {
    networks.emplace_back("local", "127.0.0.1", wire::LaneTransport::kTls);
    return networks;
  }
  CKPT_TRY(known, addresses_of_this_machine());
  for (const NetworkSettings& wanted : settings) {
    CKPT_TRY(addresses, addresses_of(wanted, known));
    wire::DataNetwork& network =
        networks.emplace_back(wanted.network.name, addresses.front(), wanted.network.transport);
    network.more_addresses.assign(addresses.begin() + 1, addresses.end());
  }
  return networks;
}

}  // namespace ckpt::agent
