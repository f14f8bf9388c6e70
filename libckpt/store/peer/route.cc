// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/route.h"

#include "libckpt/store/peer/remote_files.h"
#include "libckpt/store/peer/tiered_files.h"

namespace ckpt::checkpoint_store {

Result<OpenCheckpointStore> open_checkpoint_store(const Route& route, bool writable,
                                                  const std::string& settles) {
  OpenCheckpointStore open;
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
  CheckpointStoreOptions options;
  options.writable = writable;
  options.limit_bytes = route.limit_bytes;
  options.files = open.files.get();
  CKPT_TRY(checkpoint_store, CheckpointStore::open(route.folder, options));
  open.checkpoint_store = std::move(checkpoint_store);
  return open;
}

}  // namespace ckpt::checkpoint_store
