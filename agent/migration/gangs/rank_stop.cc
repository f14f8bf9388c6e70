// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/gangs/rank_stop.h"

namespace ckpt::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kForOrders{60};

Error is_over() {
  return {ErrorCode::kAborted, "This rank no longer takes part in the move"};
}

}  // namespace

void RankStop::want() {
  is_wanted_ = true;
  for (AsyncEvent* watcher : watchers_) watcher->notify();
}

void RankStop::is_held() {
  is_wanted_ = true;
  if (barrier_ == 0) barrier_ = kUnknownBarrier;
  for (AsyncEvent* watcher : watchers_) watcher->notify();
}

void RankStop::end() {
  is_over_ = true;
  for (AsyncEvent* watcher : watchers_) watcher->notify();
}

Task<Result<wire::RankGathered>> RankStop::gather(wire::GatherRank order) {
  auto self = shared_from_this();
  ordered_ = Clock::now();
  switch (order.act) {
    case wire::GatherAct::kReady:
      co_return co_await wait_until_wanted();
    case wire::GatherAct::kStopAt:
      co_return co_await stop_at(order.set, order.barrier);
    case wire::GatherAct::kPauseAt:
      if (is_over_ || !is_wanted_ || order.barrier == 0) co_return is_over();
      if (barrier_ == 0) {
        barrier_ = order.barrier;
        rank_->pause_at(order.barrier);
      }
      co_return wire::RankGathered();
    case wire::GatherAct::kGoOn:
    case wire::GatherAct::kInvalid:
      break;
  }
  co_return Error(ErrorCode::kInvalidArgument, "A rank that will be moved does not accept this order");
}

Task<Result<wire::RankGathered>> RankStop::wait_until_wanted() {
  auto self = shared_from_this();
  AsyncEvent changed(executor_);
  watchers_.push_back(&changed);
  while (!is_wanted_ && !is_over_) co_await changed.wait(Clock::time_point::max());
  watchers_.remove(&changed);
  if (is_over_) co_return is_over();
  wire::RankGathered answer;
  answer.stop_at = barrier_;
  co_return answer;
}

Task<Result<wire::RankGathered>> RankStop::stop_at(std::uint64_t attempt, std::uint64_t barrier) {
  auto self = shared_from_this();
  const auto job = rank_->job();
  const auto keeper = job ? job->keeper() : nullptr;
  if (is_over_ || !is_wanted_ || barrier_ != 0 || !keeper) co_return is_over();
  if (std::exchange(attempt_, attempt) != attempt) stop_requested_at_ = now_ns();
  if (!std::exchange(is_watching_, true))
    control::spawn(executor_, "rank waits for other ranks", watch_orders());
  CKPT_CO_TRY(counted, co_await keeper->stop_at(attempt, barrier));
  wire::RankGathered answer;
  answer.stop_at = counted.stop_at;
  answer.barriers = counted.barriers;
  co_return answer;
}

// Reports a failure if no order arrives, because a disconnected coordinator may not return.
Task<> RankStop::watch_orders() {
  auto self = shared_from_this();
  AsyncEvent changed(executor_);
  watchers_.push_back(&changed);
  while (!is_over_ && barrier_ == 0 && Clock::now() < ordered_ + kForOrders)
    (void)co_await changed.wait(ordered_ + kForOrders);
  watchers_.remove(&changed);
  if (!is_over_ && barrier_ == 0)
    rank_->failed(
        Error(ErrorCode::kTimedOut, "The coordinator did not choose a barrier for the ranks within " +
                                        std::to_string(kForOrders.count()) + " s"));
}

}  // namespace ckpt::agent
