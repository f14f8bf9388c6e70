// SPDX-License-Identifier: Apache-2.0
// The orders that should be on their way to nodes now, as they follow from a rank and from the view. Nothing is remembered
// here: order_sender.h keeps the orders that are on their way, and sends the missing ones.
//
// Between a migration's barrier and its end no side is ordered to end that may not own the job. A paused side that ended
// would leave the other without a way back. A side that runs alone, since the other one is away, is told.
// Threads: pure functions. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/lifecycle/job_view.h"

namespace ckpt::coordinator::lifecycle {

// Its instances up to `up_to` are to end on that node.
struct EndOrder {
  std::string node;
  Incarnation up_to = 0;
  std::int64_t grace_ms = 0;
  friend auto operator<=>(const EndOrder&, const EndOrder&) = default;
};
// The node is asked whether anything up to `up_to` lives. An inventory without the instance is no proof: the node may be
// at an order to start it. Its answer comes after every instance that it had was reported.
struct ProofOrder {
  std::string node;
  Incarnation up_to = 0;
};
struct AbortOrder {
  MigrationId migration = 0;
};
using Order = std::variant<EndOrder, ProofOrder, AbortOrder>;

// An instance lives although its job goes on from an image, or rests in one (Job::fenced): it must end at once.
[[nodiscard]] std::optional<EndOrder> fence_order(const Job& rank, const std::string& node,
                                                  const wire::JobInstance& instance);
// The orders of a rank that is to stop or was given up somewhere. `open`: the migration of the job, or of a rank that it
// moves with; null: none.
[[nodiscard]] std::vector<Order> due_orders(const Job& rank, const Migration* open, const JobView& view);
// The proofs among them.
[[nodiscard]] std::vector<ProofOrder> due_proofs(const Job& rank, const JobView& view);

// The highest incarnation of it that was given up; a job that goes on is not meant.
[[nodiscard]] Incarnation given_up_to(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
