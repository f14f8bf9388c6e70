// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_plan.h"

#include <algorithm>

namespace ckpt::gang {

Result<GangPlan> decode_gang_plan(std::span<const std::byte> bytes) {
  CKPT_TRY(plan, wire::decode<GangPlan>(bytes));
  const bool fits = std::all_of(plan.tickets.begin(), plan.tickets.end(), [](const GroupTicket& ticket) {
    return !ticket.group.empty() && ticket.group.size() <= kMaxGroupNameBytes && !ticket.ticket.empty() &&
           ticket.ticket.size() <= kMaxTicketBytes;
  });
  if (!fits || plan.moved.empty() || plan.epoch == 0)
    return Error(ErrorCode::kProtocol, "The plan of a move of ranks is not valid");
  return std::move(plan);
}

}  // namespace ckpt::gang
