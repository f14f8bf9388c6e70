// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/address.h"

#include <sys/un.h>

#include <charconv>

namespace ckpt::control {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

Error malformed(std::string_view text, std::string_view reason) {
  return {ErrorCode::kInvalidArgument,
          "Address \"" + std::string(text) + "\" is not host:port or unix:/path: " + std::string(reason)};
}

Result<Address> parse_unix(std::string_view text) {
  const std::string path(text.substr(kUnixPrefix.size()));
  if (path.empty() || path.size() >= sizeof(sockaddr_un{}.sun_path))
    return malformed(text, "a socket's path must have 1 to 107 characters");
  return Address{asio::local::stream_protocol::endpoint(path), true};
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return parse_unix(text);
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return malformed(text, "no port");
  std::string host(text.substr(0, colon));
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failure != std::errc{} || end != digits.data() + digits.size())
    return malformed(text, "the port is not a number");
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code code;
  const auto ip = asio::ip::make_address(host, code);
  if (code) return malformed(text, "the host is not an IP address");
  return Address{asio::ip::tcp::endpoint(ip, port), false};
}

std::string to_text(const asio::generic::stream_protocol::endpoint& endpoint) {
  const auto family = endpoint.protocol().family();
  if (family == AF_UNIX) {
    const auto* address = reinterpret_cast<const sockaddr_un*>(endpoint.data());
    const std::size_t path_bytes = endpoint.size() - offsetof(sockaddr_un, sun_path);
    const std::string path(address->sun_path, strnlen(address->sun_path, path_bytes));
    return std::string(kUnixPrefix) + path;
  }
  asio::ip::tcp::endpoint tcp;
  tcp.resize(endpoint.size());
  std::memcpy(tcp.data(), endpoint.data(), endpoint.size());
  const std::string host = tcp.address().to_string();
  return (tcp.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(tcp.port());
}

}  // namespace ckpt::control
