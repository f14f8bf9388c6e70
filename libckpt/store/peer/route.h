// SPDX-License-Identifier: Apache-2.0
// The location of a checkpoint store: a folder on this node, with or without a memory tier, or another node's
// checkpoint store. Every checkpoint store is opened through this header.
// Threads: any. Errors: those of checkpoint_store.h; kUnavailable if another node cannot be reached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/store/local/checkpoint_store.h"

namespace ckpt::checkpoint_store {

struct Route {
  std::string folder;             // the folder, or the local name of another node's checkpoint store
  std::uint64_t limit_bytes = 0;  // the limit on the checkpoint store's size; 0 if there is none
  std::string memory;             // the folder of the memory tier; empty if there is none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // the address of the node that has the folder; empty if the folder is on this
                             // node
  std::vector<std::byte> peer_token;
};

// An open checkpoint store and its files. The checkpoint store is destroyed before its files.
struct OpenCheckpointStore {
  std::unique_ptr<Files> files;  // the files that the checkpoint store uses; null for the operating system's
                                 // files
  std::unique_ptr<CheckpointStore> checkpoint_store;
};

// Opens a checkpoint store. `settles` is a job whose next version must survive a power failure of this
// machine. Its packs in memory are first moved to the disk (only for a checkpoint store on this node).
Result<OpenCheckpointStore> open_checkpoint_store(const Route& route, bool writable,
                                                  const std::string& settles = {});

}  // namespace ckpt::checkpoint_store
