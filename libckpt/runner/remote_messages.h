// SPDX-License-Identifier: Apache-2.0
// Counts the messages of others that wait for machines, for each migration and in all. When all places are taken, the
// migration with the most messages loses its newest. So a node that talks about its own migrations takes no place from
// others. A message that was dropped is sent again (libckpt/protocol/handover/driver.md).
// Threads: one. Ownership: counts only; the queues are the runner's. Errors: none.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::runner {

class RemoteMessages {
 public:
  struct Limits {
    std::size_t of_migration = 0;
    std::size_t in_all = 0;
  };
  struct Verdict {
    bool is_accepted = false;
    // Its newest message is to be dropped, and is counted no more.
    std::optional<wire::MigrationId> loses_newest;
  };

  explicit RemoteMessages(Limits limits) : limits_(limits) {}

  // One more of the migration has come.
  Verdict add(wire::MigrationId migration);
  // One of the migration waits no longer.
  void remove(wire::MigrationId migration);

  [[nodiscard]] std::size_t in_all() const noexcept { return in_all_; }

 private:
  Limits limits_;
  std::map<wire::MigrationId, std::size_t> of_migration_;  // no zeros
  std::size_t in_all_ = 0;
};

}  // namespace ckpt::runner
