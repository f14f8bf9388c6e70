// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/gang_gather.h"

#include <limits>

#include "libckpt/base/fault.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kAnswer{20};
constexpr std::uint64_t kUnknownBarrier = std::numeric_limits<std::uint64_t>::max();

// The ranks' answers to kReady: the ranks that are free, and the barrier at which the other ranks are held.
struct Held {
  std::vector<std::size_t> free;
  std::uint64_t barrier = 0;  // the barrier at which these ranks are held; 0: no rank is held
};

Result<Held> held_of(const RankOrders::Answers& answers) {
  Held held;
  for (std::size_t at = 0; at < answers.size(); ++at) {
    const std::uint64_t stands_at = (*answers[at])->stop_at;
    if (stands_at == 0) {
      held.free.push_back(at);
      continue;
    }
    const bool are_both_known =
        held.barrier != 0 && held.barrier != kUnknownBarrier && stands_at != kUnknownBarrier;
    if (are_both_known && stands_at != held.barrier)
      return Error(ErrorCode::kProtocol, "Ranks are held at different barriers");
    if (held.barrier == 0 || held.barrier == kUnknownBarrier) held.barrier = stands_at;
  }
  return held;
}

}  // namespace

control::Task<Result<void>> hold_at_one_step(std::shared_ptr<RankOrders> ranks,
                                             std::chrono::milliseconds longest) {
  CKPT_CO_TRY(ready, co_await ranks->ask(wire::GatherAct::kReady, 0, ranks->everyone(), longest));
  fault_point(FaultPoint::kCoordinatorRanksReady);
  CKPT_CO_TRY(held, held_of(ready));
  if (held.free.empty()) co_return ok();
  if (held.barrier == kUnknownBarrier)
    co_return Error(ErrorCode::kAborted, "The barrier at which some ranks are held is no longer known");
  if (held.barrier == 0) {
    CKPT_CO_TRY(agreed, co_await ranks->agree());
    held.barrier = agreed;
  }
  fault_point(FaultPoint::kCoordinatorRanksGathered);
  CKPT_CO_TRYV(co_await ranks->ask(wire::GatherAct::kPauseAt, held.barrier, std::move(held.free), kAnswer));
  co_return ok();
}

}  // namespace ckpt::coordinator
