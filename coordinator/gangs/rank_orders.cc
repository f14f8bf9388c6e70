// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/rank_orders.h"

#include <fmt/format.h>

#include <numeric>

#include "coordinator/gangs/gather.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kBarrierAnswer{20};
constexpr std::size_t kMaxRounds = 100;  // rounds beyond the number of ranks, after which the ranks' counts
                                         // are implausible

}  // namespace

control::Task<Result<std::uint64_t>> RankOrders::agree() {
  const auto self = shared_from_this();
  Gather gather(members_.size());
  for (std::size_t round = 0; !gather.is_agreed(); ++round) {
    if (round > members_.size() + kMaxRounds)
      co_return Error(ErrorCode::kProtocol, "The ranks do not agree on a barrier");
    std::vector<std::size_t> ordered;
    for (const std::size_t at : everyone())
      if (gather.needs_order(at)) ordered.push_back(at);
    CKPT_CO_TRY(answers, co_await ask(wire::GatherAct::kStopAt, gather.barrier(), ordered, kBarrierAnswer));
    for (const std::size_t at : ordered) {
      const wire::RankGathered& answer = **answers[at];
      gather.counted(at, answer.stop_at, answer.barriers);
    }
  }
  co_return gather.barrier();
}

control::Task<Result<RankOrders::Answers>> RankOrders::ask(wire::GatherAct act, std::uint64_t barrier,
                                                           std::vector<std::size_t> members,
                                                           std::chrono::milliseconds limit) {
  const auto self = shared_from_this();
  const auto answers = std::make_shared<Answers>(members_.size());
  for (const std::size_t at : members)
    control::spawn(executor_, "an order to a rank", ask_one(answers, at, order_for(at, act, barrier), limit));
  while (true) {
    bool are_all_here = true;
    for (const std::size_t at : members) {
      const auto& answer = (*answers)[at];
      are_all_here = are_all_here && answer.has_value();
      if (!answer || *answer) continue;
      if (auto known = known_failure(at)) co_return *std::move(known);
      co_return failure_of(at, answer->error());
    }
    if (are_all_here) co_return *answers;
    if (auto known = known_failure(std::nullopt)) co_return *std::move(known);
    co_await changed_.wait_until(std::chrono::steady_clock::now() + limit);
  }
}

control::Task<> RankOrders::ask_one(std::shared_ptr<Answers> answers, std::size_t at, wire::GatherRank order,
                                    std::chrono::milliseconds limit) {
  const auto self = shared_from_this();
  auto answer = co_await calls_.gather(members_[at].node, std::move(order), limit);
  (*answers)[at].emplace(std::move(answer));
  changed_.notify();
}

void RankOrders::send_to_all(wire::GatherAct act, std::chrono::milliseconds limit) {
  const auto ignored = std::make_shared<Answers>(members_.size());
  for (const std::size_t at : everyone())
    control::spawn(executor_, "an order to a rank", ask_one(ignored, at, order_for(at, act, 0), limit));
}

wire::GatherRank RankOrders::order_for(std::size_t at, wire::GatherAct act, std::uint64_t barrier) const {
  wire::GatherRank order;
  order.job = members_[at].job;
  order.incarnation = members_[at].incarnation;
  order.set = purpose_.set;
  order.migration = purpose_.migration;
  order.act = act;
  order.barrier = barrier;
  return order;
}

std::vector<std::size_t> RankOrders::everyone() const {
  std::vector<std::size_t> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Error RankOrders::failure_of(std::size_t member, const Error& error) const {
  return Error(error.code(), fmt::format("Rank {} on {}: {}", members_[member].rank, members_[member].node,
                                         error.message()));
}

}  // namespace ckpt::coordinator
