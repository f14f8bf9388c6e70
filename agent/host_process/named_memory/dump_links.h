// SPDX-License-Identifier: Apache-2.0
// CRIU names its links in /dev/shm by small numbers, the same in each dump, and fails if such a name exists.
// So only one dump at a time may make links on a machine. A file in /run is the lock and names the linked
// files. The next dump removes the links that a killed agent has left.
// Threads: any. Errors: none; without /run there is no lock, and dumps that meet fail.
#pragma once

#include <optional>

#include "agent/host_process/named_memory/named_memory.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {

class DumpLinks {
 public:
  DumpLinks() = default;
  // Takes the lock before the dump of a tree with these files. Nothing: another dump has the lock.
  static std::optional<DumpLinks> try_take(const NamedMemory& memory,
                                           const char* lock = "/run/gpumigrate-dump-links");
  // Called once the links are gone (save_named_memory(), remove_links()).
  void release();

 private:
  explicit DumpLinks(UniqueFd lock) : lock_(std::move(lock)) {}
  UniqueFd lock_;
};

}  // namespace ckpt::agent::host
