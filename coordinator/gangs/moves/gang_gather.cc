// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/gang_gather.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "coordinator/gangs/gather.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kAnswer{20};
constexpr std::size_t kMaxRounds = 100;  // beyond the ranks: their counts are not to be believed
constexpr std::uint64_t kUnknownBarrier = std::numeric_limits<std::uint64_t>::max();

}  // namespace

control::Task<Result<void>> GangGather::run(std::chrono::milliseconds longest) {
  const auto self = shared_from_this();
  CKPT_CO_TRY(ready, co_await ask(wire::GatherAct::kReady, 0, everyone(), longest));
  fault_point(FaultPoint::kCoordinatorRanksReady);
  std::uint64_t held_at = 0;
  std::vector<std::size_t> free;
  for (const std::size_t at : everyone()) {
    const std::uint64_t stands_at = ready[at]->assume_value().stop_at;
    if (stands_at == 0) free.push_back(at);
    if (stands_at != 0 && held_at != 0 && held_at != kUnknownBarrier && stands_at != kUnknownBarrier &&
        stands_at != held_at)
      co_return Error(ErrorCode::kProtocol, "Ranks are held at different barriers");
    if (stands_at != 0 && (held_at == 0 || held_at == kUnknownBarrier)) held_at = stands_at;
  }
  if (free.empty()) co_return ok();
  if (held_at == kUnknownBarrier)
    co_return Error(ErrorCode::kAborted, "It is not known any more at which barrier some ranks are held");
  if (held_at == 0) {
    CKPT_CO_TRY(agreed, co_await agree());
    held_at = agreed;
  }
  fault_point(FaultPoint::kCoordinatorRanksGathered);
  CKPT_CO_TRYV(co_await ask(wire::GatherAct::kPauseAt, held_at, std::move(free), kAnswer));
  co_return ok();
}

control::Task<Result<std::uint64_t>> GangGather::agree() {
  Gather gather(members_.size());
  for (std::size_t round = 0; !gather.is_agreed(); ++round) {
    if (round > members_.size() + kMaxRounds)
      co_return Error(ErrorCode::kProtocol, "The ranks do not agree on a barrier");
    std::vector<std::size_t> told;
    for (const std::size_t at : everyone())
      if (gather.is_to_be_told(at)) told.push_back(at);
    CKPT_CO_TRY(answers, co_await ask(wire::GatherAct::kStopAt, gather.barrier(), told, kAnswer));
    for (const std::size_t at : told) {
      const wire::RankGathered& answer = answers[at]->assume_value();
      gather.counted(at, answer.stop_at, answer.barriers);
    }
  }
  co_return gather.barrier();
}

control::Task<Result<GangGather::Answers>> GangGather::ask(wire::GatherAct act, std::uint64_t barrier,
                                                           std::vector<std::size_t> members,
                                                           std::chrono::milliseconds limit) {
  const auto answers = std::make_shared<Answers>(members_.size());
  for (const std::size_t at : members) {
    wire::GatherRank order;
    order.job = members_[at].job;
    order.incarnation = members_[at].incarnation;
    order.set = attempt_;
    order.act = act;
    order.barrier = barrier;
    order.migration = migration_;
    control::spawn(executor_, "an order to a rank", ask_one(answers, at, std::move(order), limit));
  }
  while (true) {
    bool are_all_here = true;
    for (const std::size_t at : members) {
      const auto& answer = (*answers)[at];
      are_all_here = are_all_here && answer.has_value();
      if (!answer || *answer) continue;
      const Error& error = answer->assume_error();
      co_return Error(error.code(), fmt::format("Rank {} on {}: {}", members_[at].rank, members_[at].node,
                                                error.message()));
    }
    if (are_all_here) co_return *answers;
    co_await changed_.wait_until(std::chrono::steady_clock::now() + limit);
  }
}

control::Task<> GangGather::ask_one(std::shared_ptr<Answers> answers, std::size_t at, wire::GatherRank order,
                                    std::chrono::milliseconds limit) {
  const auto self = shared_from_this();
  auto answer = co_await calls_.gather(members_[at].node, std::move(order), limit);
  (*answers)[at].emplace(std::move(answer));
  changed_.notify();
}

std::vector<std::size_t> GangGather::everyone() const {
  std::vector<std::size_t> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace ckpt::coordinator
