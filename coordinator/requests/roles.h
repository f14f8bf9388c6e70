// SPDX-License-Identifier: Apache-2.0
// The roles of callers of the HTTP API. Each role includes the permissions of the previous roles.
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
  kAdmin,  // starts programs, reads logs, removes nodes and images, and decides what the cluster cannot prove
};

[[nodiscard]] const char* to_text(Role role);
// Returns the role of a client's certificate, by its name. The coordinator's own certificate has the role
// admin, because the holder of its key is not restricted anyway.
[[nodiscard]] std::optional<Role> role_of(const tls::Peer& peer);

// The secret tokens of the roles.
struct RoleTokens {
  std::string viewer;
  std::string operating;
  std::string admin;
  // Returns the role of a token, compared in constant time, or nullopt for any other text.
  [[nodiscard]] std::optional<Role> role_of(std::string_view given) const;
};

}  // namespace ckpt::coordinator
