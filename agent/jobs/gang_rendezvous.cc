// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/gang_rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::string_view kAddress = "MASTER_ADDR=";
constexpr std::string_view kPort = "MASTER_PORT=";

const std::string* find_variable(const std::vector<std::string>& environment, std::string_view name) {
  const auto at = std::find_if(environment.begin(), environment.end(),
                               [name](const std::string& entry) { return entry.starts_with(name); });
  return at == environment.end() ? nullptr : &*at;
}

// Returns a port that is currently free. Another program may take the port before rank 0 listens there. Rank
// 0 then exits with its own error.
Result<std::uint16_t> free_port() {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return Error::from_errno("Cannot find a free port for the ranks of a job");
  return ntohs(address.sin_port);
}

}  // namespace

Result<void> add_rendezvous(wire::JobSpec& spec) {
  if (!spec.gang.has_peers()) return ok();
  if (find_variable(spec.env, kAddress) == nullptr) spec.env.push_back(std::string(kAddress) + "127.0.0.1");
  if (find_variable(spec.env, kPort) != nullptr) return ok();
  CKPT_TRY(port, free_port());
  spec.env.push_back(std::string(kPort) + std::to_string(port));
  return ok();
}

bool is_same_order(const wire::JobSpec& started, wire::JobSpec asked) {
  for (const std::string_view name : {kAddress, kPort}) {
    const std::string* added = find_variable(started.env, name);
    if (added != nullptr && find_variable(asked.env, name) == nullptr) asked.env.push_back(*added);
  }
  wire::JobSpec known = started;
  std::sort(known.env.begin(), known.env.end());
  std::sort(asked.env.begin(), asked.env.end());
  return wire::encode(known) == wire::encode(asked);
}

}  // namespace ckpt::agent
