// SPDX-License-Identifier: Apache-2.0
// Allows one dump at a time on a machine to create links. CRIU names its links in /dev/shm by small numbers.
// The numbers are the same in each dump, and CRIU fails if such a name exists. A file in /run is the lock and
// lists the linked files. The next dump removes the links that a killed agent has left.
// Threads: any. Errors: none. Without /run there is no lock, and concurrent dumps fail.
#pragma once

#include <optional>

#include "agent/host_process/named_memory/named_memory.h"
#include "agent/host_process/processes/own_namespaces.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {

class DumpLinks {
 public:
  DumpLinks() = default;
  // Takes the lock before the dump of a tree with the files `memory`. Returns nothing if another dump has the
  // lock.
  static std::optional<DumpLinks> try_acquire(const NamedMemory& memory,
                                              const char* lock = "/run/gpumigrate-dump-links");
  // Releases the lock. Call this function after the links were removed (save_named_memory(), remove_links()).
  void release();

 private:
  explicit DumpLinks(UniqueFd lock) : lock_(std::move(lock)) {}
  UniqueFd lock_;
};

// Removes the links that a dump has created in the folders that only the job has. Such links need no lock. A
// link that is left would make every later dump fail.
void remove_own_links(pid_t root, const OwnNamespaces& own);

}  // namespace ckpt::agent::host
