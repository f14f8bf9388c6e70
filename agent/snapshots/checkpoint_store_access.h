// SPDX-License-Identifier: Apache-2.0
// The agent's own access to a checkpoint store. It lists versions, reads a version's description of its job,
// and removes versions. Memory is transferred through movers.
// Threads: none inside. All functions block on a disk, so they run on a separate pool. Errors: those of
// checkpoint_store.h. kRefused while another process writes to the store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/protocol/wire/mover_checkpoint_messages.h"
#include "libckpt/store/peer/route.h"
#include "libckpt/store/stored_job.h"

namespace ckpt::agent::protect {

struct CheckpointStorePlace {
  std::string path;  // path of the store; for a store of another node, the node's name
  std::string word;  // the coordinator's name for the store; empty for the node's own store
  std::uint64_t limit_bytes = 0;
  wire::mover::CheckpointStoreAccess access;

  [[nodiscard]] checkpoint_store::Route route() const;
};

// Lists a whole checkpoint store, or one job in it, in as many parts as the frames need. A folder without a
// store counts as an empty store.
Result<std::vector<wire::CheckpointStoreContents>> list_checkpoint_store(const CheckpointStorePlace& place,
                                                                         const std::string& image_job = {});
// Returns the total size of the files in the store that do not belong to this job.
Result<std::uint64_t> bytes_of_others(const CheckpointStorePlace& place, const std::string& image_job);
Result<void> perform(const CheckpointStorePlace& place, const wire::CheckpointStoreOrder& order);

struct StoredVersion {
  std::uint64_t number = 0;
  std::int64_t barrier_ms = 0;
  image::StoredJob job;
};
// Reads a version. `version` 0 means the newest version with a complete file.
Result<StoredVersion> read_version(const CheckpointStorePlace& place, const std::string& image_job,
                                   std::uint64_t version);

// Creates the folder for images in memory and its parent folder, if they are missing (mode 0700). kRefused
// means that other users could replace one of them. Both must be folders of this user or root, and no links,
// and no other user may write to them. The parent may be shared, like /dev/shm.
Result<void> claim_memory_folder(const std::string& folder);

}  // namespace ckpt::agent::protect
