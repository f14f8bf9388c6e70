// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/gang_orders.h"

namespace ckpt::agent {

GangOrders::GangOrders(CoordinatorLink& link, GangMoves& moves, asio::any_io_executor executor) {
  link.subscribe(wire::FrameType::kAskGroups,
                 [&moves, executor = std::move(executor)](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(request, wire::decode<gang::AskGroups>(body));
                   control::spawn(executor, "groups of a rank", moves.answer_groups(std::move(request)));
                   return ok();
                 });
}

}  // namespace ckpt::agent
