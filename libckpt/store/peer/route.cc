// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/route.h"

#include "libckpt/store/peer/remote_files.h"
#include "libckpt/store/peer/tiered_files.h"

namespace ckpt::vault {

Result<OpenVault> open_vault(const Route& route, bool writable, const std::string& settles) {
  OpenVault open;
  if (!route.peer_address.empty()) {
    RemoteFiles::Settings settings;
    settings.address = route.peer_address;
    settings.token = route.peer_token;
    settings.folder = route.folder;
    CKPT_TRY(remote, RemoteFiles::connect(std::move(settings)));
    open.files = std::move(remote);
  } else if (!route.memory.empty()) {
    Tiers tiers;
    tiers.disk = route.folder;
    tiers.memory = route.memory;
    tiers.memory_limit_bytes = route.memory_limit_bytes;
    tiers.settles = settles;
    open.files = std::make_unique<TieredFiles>(std::move(tiers));
  }
  VaultOptions options;
  options.writable = writable;
  options.limit_bytes = route.limit_bytes;
  options.files = open.files.get();
  CKPT_TRY(vault, Vault::open(route.folder, options));
  open.vault = std::move(vault);
  return open;
}

}  // namespace ckpt::vault
