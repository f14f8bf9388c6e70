// SPDX-License-Identifier: Apache-2.0
// The effects for a rank that stays in place while other ranks of its gang move. The rank gets new
// communicators, is paused at the common barrier, and continues. Each order returns at once, and its result
// is an event.
// Threads: the event loop. Ownership: shared with its coroutines. Errors: CommunicatorsFailed. This event
// also reports a failed pause, because the rank cannot be held then. The order to continue is repeated as
// long as the rank runs.
#pragma once

#include <functional>
#include <memory>

#include "agent/migration/modes/migration_context.h"
#include "libckpt/protocol/gang/gang_bystander.h"
#include "libckpt/protocol/gang/gang_plan.h"

namespace ckpt::agent {

class BystanderSession : public std::enable_shared_from_this<BystanderSession> {
 public:
  using Emit = std::function<void(gang::BystanderEvent)>;
  // Reports a rank that continues with its new communicators. The arguments are the times at which the rank
  // reached its barrier and continued, by this node's clock, and the time that the communicators took.
  using Measured = std::function<void(Nanos stood_since, Nanos went_on, Nanos groups)>;
  BystanderSession(MigrationContext& context, gang::StayingRank rank, std::uint64_t epoch, Emit emit,
                   Measured measured);
  ~BystanderSession();

  // Admits the rank to the move. From now on nothing else stops the rank. Emits RankReady.
  void admit();
  // Creates new communicators with `tickets`. Without tickets, the rank has no group with a moved member. The
  // rank must be admitted first.
  void join(std::vector<gang::GroupTicket> tickets, Milliseconds timeout);
  void discard();
  void pause_at(std::uint64_t barrier);
  // Continues the rank with the new communicators, or with the old ones.
  void go_on(bool with_new);
  // Terminates the rank. Emits RankEnded once the exit is proven.
  void end();
  [[nodiscard]] std::shared_ptr<Job> job() const { return job_; }

 private:
  void attach();
  Task<Result<void>> be_admitted();
  Task<> admit_rank();
  Task<> join_groups(std::vector<gang::GroupTicket> tickets, Milliseconds timeout);
  Task<> pause(std::uint64_t barrier);
  Task<> resume(std::uint64_t order, std::uint64_t epoch);
  Task<> end_rank();

  MigrationContext& context_;
  const gang::StayingRank rank_;
  const std::uint64_t epoch_;
  const Emit emit_;
  const Measured measured_;
  bool is_admitted_ = false;
  bool is_ending_ = false;
  Nanos groups_took_ = 0;
  Nanos stood_since_ = 0;  // time at which the rank entered its barrier; 0 if the rank is not known to be
                           // paused
  std::shared_ptr<Job> job_;
  std::uint64_t listener_ = 0;
  std::unique_ptr<KeeperLink::Exchange> pausing_;
  std::uint64_t orders_ = 0;  // number of orders to continue; only the last order counts
};

// Converts tickets to an order of the rank's library. kInvalidArgument means that a ticket does not fit into
// the order.
[[nodiscard]] Result<local::JoinGroups> to_order(const std::vector<gang::GroupTicket>& tickets,
                                                 std::uint64_t epoch);

}  // namespace ckpt::agent
