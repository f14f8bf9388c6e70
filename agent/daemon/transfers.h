// SPDX-License-Identifier: Apache-2.0
// The transfers of this node's movers, taken from their reports to the coordinator. The movers are never
// queried.
// Threads: the event loop. Ownership: borrows the port to the coordinator. Errors: errors of the port are
// returned unchanged.
#pragma once

#include <functional>
#include <map>

#include "agent/migration/ports/coordinator_port.h"

namespace ckpt::agent {

class Transfers : public CoordinatorPort {
 public:
  using Open = std::function<bool(wire::MigrationId)>;  // returns whether the migration is open with this
                                                        // node as its source
  explicit Transfers(CoordinatorPort& coordinator) : coordinator_(coordinator) {}

  bool send(const wire::CommitMessage& message) override { return coordinator_.send(message); }
  bool send(const wire::MigrationProgress& progress) override;
  bool send(const wire::SourceReport& report) override { return coordinator_.send(report); }
  bool send(const wire::TargetReport& report) override { return coordinator_.send(report); }

  // Returns the last report of each transfer that was not dropped.
  [[nodiscard]] const std::map<wire::MigrationId, wire::MigrationProgress>& last() const { return last_; }
  // Returns the bytes of chunks, before encoding, that were sent in all transfers. The number never
  // decreases.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  // Drops the transfers that are not open. This function is called periodically, because it may happen that
  // no client ever reads the page.
  void drop_closed(const Open& is_open);

 private:
  CoordinatorPort& coordinator_;
  std::map<wire::MigrationId, wire::MigrationProgress> last_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace ckpt::agent
