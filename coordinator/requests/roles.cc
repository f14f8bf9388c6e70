// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/roles.h"

#include <array>

#include "libckpt/net/control/connection.h"

namespace ckpt::coordinator {
namespace {

constexpr std::array kRoles = {Role::kViewer, Role::kOperator, Role::kAdmin};

}  // namespace

const char* to_text(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      break;
  }
  return "admin";
}

std::optional<Role> role_of(const tls::Peer& peer) {
  if (peer.kind == tls::Peer::Kind::kCoordinator) return Role::kAdmin;
  if (peer.kind != tls::Peer::Kind::kClient) return std::nullopt;
  for (const Role role : kRoles)
    if (peer.name == to_text(role)) return role;
  return std::nullopt;
}

std::optional<Role> RoleTokens::role_of(std::string_view given) const {
  std::optional<Role> role;
  if (control::same_token(given, viewer)) role = Role::kViewer;
  if (control::same_token(given, operating)) role = Role::kOperator;
  if (control::same_token(given, admin)) role = Role::kAdmin;
  return role;
}

}  // namespace ckpt::coordinator
