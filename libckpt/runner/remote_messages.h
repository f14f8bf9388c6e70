// SPDX-License-Identifier: Apache-2.0
// Counts the messages of other processes that wait for machines, per migration and in total. When the total
// limit is reached, the migration with the most messages loses its newest message. A node that sends many
// messages about its own migrations therefore does not displace messages about other migrations. A dropped
// message is sent again (libckpt/protocol/handover/driver.md).
// Threads: one. Ownership: counts only; the runner owns the queues. Errors: none.
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
    // The migration whose newest message must be dropped. That message is no longer counted.
    std::optional<wire::MigrationId> loses_newest;
  };

  explicit RemoteMessages(Limits limits) : limits_(limits) {}

  // Counts a new message of the migration, unless a limit refuses it.
  Verdict add(wire::MigrationId migration);
  // Removes a message that no longer waits from the count of its migration.
  void remove(wire::MigrationId migration);

  [[nodiscard]] std::size_t in_all() const noexcept { return in_all_; }

 private:
  Limits limits_;
  std::map<wire::MigrationId, std::size_t> of_migration_;  // the number of waiting messages of every
                                                           // migration, without zero counts
  std::size_t in_all_ = 0;
};

}  // namespace ckpt::runner
