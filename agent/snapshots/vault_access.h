// SPDX-License-Identifier: Apache-2.0
// The agent's own access to a vault: it lists versions, reads a version's description of its job, and removes
// versions. Memory goes through movers.
// Threads: none inside; all of it blocks on a disk, so it runs on a pool of its own. Errors: of vault.h;
// kRefused while another process writes there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/protocol/wire/mover_vault_messages.h"
#include "libckpt/store/peer/route.h"
#include "libckpt/store/stored_job.h"

namespace ckpt::agent::protect {

struct VaultPlace {
  std::string path;  // of another node: its name
  std::string word;  // the coordinator's name for it; empty: the node's own
  std::uint64_t limit_bytes = 0;
  wire::mover::VaultAccess access;

  [[nodiscard]] vault::Route route() const;
};

// Lists all of a vault, or of one job in it, in as many parts as frames need. A folder without a vault counts
// as an empty one.
Result<std::vector<wire::VaultContents>> list_vault(const VaultPlace& place,
                                                    const std::string& vault_job = {});
// Returns the size of the vault's files, without those of this job.
Result<std::uint64_t> bytes_of_others(const VaultPlace& place, const std::string& vault_job);
Result<void> perform(const VaultPlace& place, const wire::VaultOrder& order);

struct StoredVersion {
  std::uint64_t number = 0;
  std::int64_t barrier_ms = 0;
  image::StoredJob job;
};
// `version` 0: the newest whose file is whole.
Result<StoredVersion> read_version(const VaultPlace& place, const std::string& vault_job,
                                   std::uint64_t version);

// Makes the folder for images in memory, and the folder in which it lies, if they are missing (mode 0700).
// kRefused: others could replace one of them. Both must be folders of this user or root, not links, and
// writable by no others. The outer one may be shared, like /dev/shm.
Result<void> claim_memory_folder(const std::string& folder);

}  // namespace ckpt::agent::protect
