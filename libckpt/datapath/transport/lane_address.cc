// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/lane_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <charconv>

namespace ckpt::transport {
namespace {

sockaddr_in& v4(LaneAddress& address) {
  return *reinterpret_cast<sockaddr_in*>(&address.storage);
}
sockaddr_in6& v6(LaneAddress& address) {
  return *reinterpret_cast<sockaddr_in6*>(&address.storage);
}

bool stands_for_an_interface(LaneAddress& address) {
  if (address.family() == AF_INET)
    return v4(address).sin_addr.s_addr != INADDR_ANY && !IN_MULTICAST(ntohl(v4(address).sin_addr.s_addr)) &&
           v4(address).sin_addr.s_addr != INADDR_BROADCAST;
  const in6_addr& ip = v6(address).sin6_addr;
  return !IN6_IS_ADDR_UNSPECIFIED(&ip) && !IN6_IS_ADDR_MULTICAST(&ip) && !IN6_IS_ADDR_V4MAPPED(&ip) &&
         !IN6_IS_ADDR_V4COMPAT(&ip);
}

}  // namespace

std::string ip_text(const LaneAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* ip =
      address.family() == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  ::inet_ntop(address.family(), ip, text, sizeof text);
  return text;
}

LaneAddress with_port(LaneAddress address, std::uint16_t port) {
  (address.family() == AF_INET ? v4(address).sin_port : v6(address).sin6_port) = htons(port);
  return address;
}

std::vector<std::uint16_t> ports_in_turn(PortRange ports) {
  if (ports.first == 0) return {0};
  static std::atomic<std::uint32_t> turn{static_cast<std::uint32_t>(::getpid())};
  const std::uint32_t count = std::uint32_t{ports.last} - ports.first + 1;
  const std::uint32_t begin = turn.fetch_add(1) % count;
  std::vector<std::uint16_t> all(count);
  for (std::uint32_t i = 0; i < count; ++i)
    all[i] = static_cast<std::uint16_t>(ports.first + (begin + i) % count);
  return all;
}

Error ports_taken(PortRange ports, const LaneAddress& local) {
  return {ErrorCode::kUnavailable, "All ports from " + std::to_string(ports.first) + " to " +
                                       std::to_string(ports.last) + " are in use on " + ip_text(local) +
                                       ": give a larger range as mover.ports in agent.toml"};
}

std::string format_address(std::string_view scheme, const LaneAddress& address) {
  const bool is_v4 = address.family() == AF_INET;
  const in_port_t port = is_v4 ? reinterpret_cast<const sockaddr_in*>(address.get())->sin_port
                               : reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port;
  const std::string ip = ip_text(address);
  return std::string(scheme) + (is_v4 ? ip : "[" + ip + "]") + ":" + std::to_string(ntohs(port));
}

Result<LaneAddress> parse_ip(const std::string& ip) {
  LaneAddress address;
  if (ip.find('\0') != std::string::npos)
    return Error(ErrorCode::kInvalidArgument, "An IP address must not contain a zero byte");
  if (::inet_pton(AF_INET, ip.c_str(), &v4(address).sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, ip.c_str(), &v6(address).sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  }
  if (address.length == 0 || !stands_for_an_interface(address))
    return Error(ErrorCode::kInvalidArgument, "This is not the IP address of an interface: " + ip);
  return address;
}

Result<LaneAddress> parse_address(std::string_view scheme, const std::string& text) {
  const Error bad(ErrorCode::kInvalidArgument,
                  "This is not the address of a lane of this network's transport");
  const std::size_t colon = text.rfind(':');
  if (text.size() > 256 || !text.starts_with(scheme) || colon < scheme.size()) return bad;
  std::string ip = text.substr(scheme.size(), colon - scheme.size());
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  auto parsed = parse_ip(ip);
  if (!parsed.has_value()) return bad;
  LaneAddress address = *parsed;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data() + colon + 1, end, port);
  if (number.ec != std::errc() || number.ptr != end || port == 0) return bad;
  (address.family() == AF_INET ? v4(address).sin_port : v6(address).sin6_port) = htons(port);
  if (format_address(scheme, address) != text) return bad;  // refuses a different form of the same address
  return address;
}

}  // namespace ckpt::transport
