// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/site_files.h"

#include <algorithm>
#include <sstream>

#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/toml_text.h"

namespace ckpt::cli {
namespace {

using control::toml_string;
namespace ip = control::asio::ip;

constexpr const char* kApiPort = ":7060";
constexpr const char* kAgentPort = ":7070";
constexpr const char* kPeerPort = ":7071";
constexpr const char* kMetricsPort = ":9402";
constexpr const char* kCheckpointStorePort = "7072";
constexpr const char* kMoverPorts = "7100-7199";

bool is_address(const std::string& text) {
  boost::system::error_code code;
  (void)ip::make_address(text, code);
  return !code;
}

// Returns the address in the form required before a port, with brackets around an IPv6 address.
std::string host_text(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

// Returns the first IP address, or an empty text if there is none.
std::string first_address(const std::vector<std::string>& hosts) {
  const auto found = std::find_if(hosts.begin(), hosts.end(), is_address);
  return found == hosts.end() ? std::string() : *found;
}

void write_tls(std::ostream& text, const std::string& folder, const std::string& name) {
  text << "\n[tls]\nca = " << toml_string(folder + "/ca.pem")
       << "\ncertificate = " << toml_string(folder + "/" + name + ".pem")
       << "\nkey = " << toml_string(folder + "/" + name + ".key") << "\n";
}

}  // namespace

bool is_reachable(const CoordinatorSite& site) {
  return !first_address(site.hosts).empty();
}

std::string coordinator_settings(const CoordinatorSite& site) {
  std::ostringstream text;
  text << "# Settings of the coordinator. All keys: docs/site/settings.md\n"
       << "home = " << toml_string(site.home) << "\n";
  if (is_reachable(site)) {
    const std::string host = host_text(first_address(site.hosts));
    text << "api_address = " << toml_string(host + kApiPort) << "      # for the command on other machines\n"
         << "agent_address = " << toml_string(host + kAgentPort) << "    # for agents\n";
  }
  text << "# The coordinator signs certificates with this authority's key: nodes join by a token and renew "
          "theirs.\n"
       << "certificate_authority = " << toml_string(site.authority) << "\n";
  write_tls(text, site.authority, "coordinator");
  return text.str();
}

std::string node_settings(const NodeSite& site) {
  const std::string host = host_text(site.address);
  std::ostringstream text;
  text << "# Settings of a node's agent. All keys: docs/site/settings.md\n"
       << "node = " << toml_string(site.node) << "\n"
       << "home = " << toml_string(site.home)
       << "      # holds the journal, logs, output and images of jobs\n"
       << "coordinator = " << toml_string(site.coordinator) << "\n"
       << "token_file = " << toml_string(site.folder + "/agent-token") << "\n"
       << "peer_listen = " << toml_string(host + kPeerPort) << "      # for agents of other nodes\n"
       << "metrics_address = " << toml_string(host + kMetricsPort) << "  # for Prometheus\n"
       << "checkpoint_store_port = " << kCheckpointStorePort
       << "      # for images, at the first network's address\n"
       << "\n[mover]\nports = " << toml_string(kMoverPorts) << "      # for device memory\n"
       << "\n# Networks carry device memory and images. The first one is preferred.\n"
       << "[[network]]\nname = \"data\"\naddress = " << toml_string(site.address)
       << "\ntransport = \"tls\"\n";
  write_tls(text, site.folder, "node");
  return text.str();
}

Result<void> has_address(const std::string& address) {
  boost::system::error_code code;
  const auto parsed = ip::make_address(address, code);
  if (code || parsed.is_unspecified() || parsed.is_multicast())
    return Error(ErrorCode::kInvalidArgument,
                 "\"" + address + "\" is not the IP address of one machine; use one like 10.0.0.2");
  control::asio::io_context context;
  ip::tcp::acceptor socket(context);
  const ip::tcp::endpoint endpoint(parsed, 0);
  (void)socket.open(endpoint.protocol(), code);
  if (!code) (void)socket.bind(endpoint, code);
  if (code)
    return Error(ErrorCode::kInvalidArgument,
                 "This machine does not have the address " + address + ": " + code.message());
  return ok();
}

std::string reachable_address(const std::string& address, const std::string& url) {
  const std::size_t port = address.rfind(':');
  if (port == std::string::npos || address.starts_with("unix:")) return address;
  std::string host = address.substr(0, port);
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  boost::system::error_code code;
  const auto parsed = ip::make_address(host, code);
  if (code || !parsed.is_unspecified()) return address;
  constexpr std::string_view kScheme = "https://";
  const std::size_t end = url.rfind(':');
  if (!url.starts_with(kScheme) || end <= kScheme.size()) return address;
  return url.substr(kScheme.size(), end - kScheme.size()) + address.substr(port);
}

}  // namespace ckpt::cli
