// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/simulators/ncclsim/base/settings.h"

namespace ncclsim {
namespace {

class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string text) : given_(!text.empty()) {
    excludes_ = take(&text, '^');
    whole_ = take(&text, '=');
    std::istringstream list(text);
    for (std::string name; std::getline(list, name, ',');) {
      if (!name.empty()) names_.push_back(name);
    }
  }
  [[nodiscard]] bool given() const { return given_; }
  [[nodiscard]] bool takes(const std::string& name) const {
    if (!given_) return true;
    bool listed = false;
    for (const std::string& wanted : names_)
      listed = listed || (whole_ ? name == wanted : name.rfind(wanted, 0) == 0);
    return listed != excludes_;
  }

 private:
  static bool take(std::string* text, char sign) {
    if (text->empty() || text->front() != sign) return false;
    text->erase(0, 1);
    return true;
  }
  bool given_;
  bool excludes_ = false;
  bool whole_ = false;
  std::vector<std::string> names_;
};

Endpoint endpoint_of(const sockaddr* address) {
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  return {in.sin_addr.s_addr, 0, 0};
}

}  // namespace

std::string to_text(const Endpoint& endpoint) {
  char text[INET_ADDRSTRLEN] = {};
  const in_addr address{endpoint.address};
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(endpoint.port));
}

ncclResult_t own_address(Endpoint* out) {
  const InterfaceFilter filter(text_of("NCCL_SOCKET_IFNAME"));
  ifaddrs* list = nullptr;
  NCCLSIM_CHECK(::getifaddrs(&list) == 0, ncclSystemError, "the interfaces cannot be listed");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  bool found = false;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    const bool usable =
        item->ifa_addr != nullptr && item->ifa_addr->sa_family == AF_INET && (item->ifa_flags & IFF_UP) != 0;
    if (!usable || !filter.takes(item->ifa_name)) continue;
    const bool loopback = (item->ifa_flags & IFF_LOOPBACK) != 0;
    if (!found || !loopback) *out = endpoint_of(item->ifa_addr);
    found = true;
    if (filter.given() || !loopback) return ncclSuccess;
  }
  NCCLSIM_CHECK(found, ncclInvalidUsage, "no network interface fits NCCL_SOCKET_IFNAME=%s",
                text_of("NCCL_SOCKET_IFNAME").c_str());
  return ncclSuccess;
}

}  // namespace ncclsim
