// SPDX-License-Identifier: Apache-2.0
// Roles of callers of the HTTP API. Each role may do what the ones before it may, and more.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::coordinator {

enum class Role : std::uint8_t {
  kViewer,    // reads lists, without commands and logs of jobs
  kOperator,  // moves, parks and stops jobs, drains nodes, sets the policy
  kAdmin,     // starts programs, reads logs, removes nodes and images, decides what the cluster cannot prove
};

[[nodiscard]] const char* to_text(Role role);
// That of a client's certificate by its name. The coordinator's own is an admin's: who has its key may do all.
[[nodiscard]] std::optional<Role> role_of(const tls::Peer& peer);

// The secrets that stand for roles.
struct RoleTokens {
  std::string viewer;
  std::string operating;
  std::string admin;
  // Compared in constant time; nothing for any other text.
  [[nodiscard]] std::optional<Role> role_of(std::string_view given) const;
};

}  // namespace ckpt::coordinator
