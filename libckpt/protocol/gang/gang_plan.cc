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

const MovedRank* find_moved(const GangPlan& plan, std::uint32_t rank) {
  const auto at = std::find_if(plan.moved.begin(), plan.moved.end(),
                               [rank](const MovedRank& known) { return known.rank == rank; });
  return at == plan.moved.end() ? nullptr : &*at;
}

const StayingRank* find_staying(const GangPlan& plan, std::uint32_t rank) {
  const auto at = std::find_if(plan.staying.begin(), plan.staying.end(),
                               [rank](const StayingRank& known) { return known.rank == rank; });
  return at == plan.staying.end() ? nullptr : &*at;
}

}  // namespace ckpt::gang
