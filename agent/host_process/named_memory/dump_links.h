// SPDX-License-Identifier: Apache-2.0
// CRIU names its links in /dev/shm by small numbers, the same in each dump, and fails where such a name exists. So on
// one machine one dump at a time makes links. A file in /run is the lock and names the files that are linked. What an
// agent that was killed has left is removed by the next dump.
// Threads: any. Errors: none; without /run there is no lock, and dumps that meet fail.
#pragma once

#include <optional>

#include "agent/host_process/named_memory/named_memory.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {

class DumpLinks {
 public:
  DumpLinks() = default;
  // Before the dump of a tree with these files; nothing: another dump has the lock.
  static std::optional<DumpLinks> try_take(const NamedMemory& memory,
                                           const char* lock = "/run/gpumigrate-dump-links");
  // The links are gone (save_named_memory(), remove_links()).
  void release();

 private:
  explicit DumpLinks(UniqueFd lock) : lock_(std::move(lock)) {}
  UniqueFd lock_;
};

}  // namespace ckpt::agent::host
