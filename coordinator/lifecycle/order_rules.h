// SPDX-License-Identifier: Apache-2.0
// The orders that nodes should have received by now, derived from a rank and the view. No state is stored
// here. order_sender.h tracks the orders under way and sends the missing ones.
//
// Between a migration's barrier and its end, a side that may not own the job receives no end order. A paused
// side that ended would leave the other side without a way back. A side that runs alone because the other
// side is disconnected does receive the order.
// Threads: pure functions. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/lifecycle/job_view.h"

namespace ckpt::coordinator::lifecycle {

// The order that the rank's instances up to `up_to` must end on the node.
struct EndOrder {
  std::string node;
  Incarnation up_to = 0;
  std::int64_t grace_ms = 0;
  friend auto operator<=>(const EndOrder&, const EndOrder&) = default;
};
// The query whether any instance up to `up_to` exists on the node. An inventory without the instance is not
// proof, because the node may be executing an order to start it. The node's answer arrives after reports of
// all its instances.
struct ProofOrder {
  std::string node;
  Incarnation up_to = 0;
};
struct AbortOrder {
  MigrationId migration = 0;
};
using Order = std::variant<EndOrder, ProofOrder, AbortOrder>;

// Returns the order to end an instance at once. Its job has continued from an image, or was parked in an
// image (Job::fenced).
[[nodiscard]] std::optional<EndOrder> fence_order(Incarnation fenced, const std::string& node,
                                                  const wire::JobInstance& instance);
// Returns the orders for a rank that must stop, or that has an abandoned instance. `open` is the migration of
// the job, or of a rank that moves together with it; null: none.
[[nodiscard]] std::vector<Order> due_orders(const Job& rank, const Migration* open, const JobView& view);
// Returns the proof orders that due_orders() contains.
[[nodiscard]] std::vector<ProofOrder> due_proofs(const Job& rank, const JobView& view);

// Returns the highest incarnation of the rank that was abandoned. For a job that continues, the current
// incarnation is not included.
[[nodiscard]] Incarnation given_up_to(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
