// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_snapshot.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "coordinator/gangs/gather.h"
#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestSnapshot{60};
constexpr std::chrono::minutes kLongestCopy{50};  // of what leaves ahead of the pause
constexpr std::chrono::seconds kStopAnswer{20};
constexpr std::chrono::seconds kLettingGo{20};
constexpr std::chrono::seconds kGoOnAnswer{30};
constexpr std::chrono::seconds kRepeated{20};
// The set before stays until all images of the new one are durable.
constexpr std::uint32_t kKeptAtLeast = 2;
constexpr std::size_t kMaxRounds = 100;  // beyond the ranks: their counts are not to be believed

}  // namespace

std::shared_ptr<GangSnapshot> GangSnapshot::create(Parts parts, const Gang& gang, Wish wish) {
  std::shared_ptr<GangSnapshot> snapshot(new GangSnapshot(std::move(parts), std::move(wish)));
  for (const Job* rank : gang.ranks) {
    Member& member = snapshot->members_.emplace_back();
    member.job = rank->id;
    member.rank = rank->ranks.front().rank;
    member.incarnation = rank->incarnation;
    member.node = rank->node();
    member.owner = vault_node(*rank, snapshot->wish_.to);
  }
  return snapshot;
}

control::Task<Result<void>> GangSnapshot::run() {
  const auto self = shared_from_this();
  for (const std::size_t at : everyone()) control::spawn(parts_.executor, "an image of a rank", take(at));
  control::spawn(parts_.executor, "ranks that wait", keep_waiting());
  auto done = co_await agree();
  bool is_given_up = false;
  while (true) {
    if (const auto failed = first_failure(); failed && done) done = *failed;
    if (!done && !std::exchange(is_given_up, true)) give_up();
    if (are_all_over()) break;
    co_await changed_.wait_until(steady_clock::now() + kLongestSnapshot);
  }
  is_over_ = true;
  changed_.notify();
  if (done) co_return done;
  failed_with_ = done.assume_error().code();
  co_await let_go();
  co_return done;
}

// A node that is still at a set of a coordinator before this one lets that go first.
control::Task<> GangSnapshot::take(std::size_t at) {
  const auto self = shared_from_this();
  const auto deadline = steady_clock::now() + kLettingGo;
  auto taken = co_await order(at);
  while (!taken && is_busy(at, taken.assume_error()) && steady_clock::now() < deadline && !first_failure()) {
    co_await wait_for_change(parts_.jobs);
    taken = co_await order(at);
  }
  members_[at].taken.emplace(std::move(taken));
  changed_.notify();
}

control::Task<Result<void>> GangSnapshot::order(std::size_t at) {
  const Member& member = members_[at];
  const Job* job = parts_.jobs.find(member.job);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "It was removed");
  CKPT_CO_TRY(order, parts_.orders.order_of(*job, wish_.to, false));
  order.set = wish_.set;
  order.keep = std::max(order.keep, kKeptAtLeast) + leftovers_of_rank(*job);
  order.holds_after = wish_.holds;
  order.full = wish_.full;
  RunningSnapshot shown(wish_.task, member.node, member.owner);
  shown.set = wish_.set;
  const SnapshotOrders::Outcome outcome =
      co_await parts_.orders.give(std::move(order), std::move(shown), kLongestSnapshot);
  members_[at].has_begun = outcome.has_begun;
  if (!outcome.taken && outcome.taken.assume_error().code() == ErrorCode::kTimedOut)
    parts_.orders.give_up_soon(member.job, member.node, member.incarnation);
  co_return outcome.taken;
}

// Images of sets that have failed push none out that are of use.
std::uint32_t GangSnapshot::leftovers_of_rank(const Job& rank) const {
  const auto gang = find_gang(parts_.jobs, rank.spec.gang.id);
  if (!gang) return 0;
  const std::vector<Image> left = leftovers_of(parts_.catalog, *gang);
  return static_cast<std::uint32_t>(
      std::count_if(left.begin(), left.end(), [&rank](const Image& image) { return image.job == rank.id; }));
}

bool GangSnapshot::is_busy(std::size_t at, const Error& error) const {
  const Member& member = members_[at];
  return error.code() == ErrorCode::kUnavailable && !member.has_begun && parts_.nodes.connected(member.node);
}

// A node has its order once it has reported on it: before that it would not know what is asked.
control::Task<Result<void>> GangSnapshot::wait_for_begin() {
  const auto has_begun = [this](const Member& member) {
    const RunningSnapshot* running = parts_.running.find(member.job);
    return running != nullptr && running->has_begun;
  };
  const auto deadline = steady_clock::now() + kLongestCopy;
  while (!std::all_of(members_.begin(), members_.end(), has_begun)) {
    if (auto failed = first_failure()) co_return *std::move(failed);
    if (steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut, "Not all ranks have begun with their images");
    co_await wait_for_change(parts_.jobs);
  }
  co_return ok();
}

control::Task<Result<void>> GangSnapshot::agree() {
  CKPT_CO_TRYV(co_await wait_for_begin());
  CKPT_CO_TRYV(co_await ask(wire::GatherAct::kReady, 0, everyone(), kLongestCopy));
  fault_point(FaultPoint::kCoordinatorRanksReady);
  Gather gather(members_.size());
  for (std::size_t round = 0; !gather.is_agreed(); ++round) {
    if (round > members_.size() + kMaxRounds)
      co_return Error(ErrorCode::kProtocol, "The ranks do not agree on a barrier");
    std::vector<std::size_t> told;
    for (const std::size_t at : everyone())
      if (gather.is_to_be_told(at)) told.push_back(at);
    CKPT_CO_TRY(answers, co_await ask(wire::GatherAct::kStopAt, gather.barrier(), told, kStopAnswer));
    for (const std::size_t at : told) {
      const wire::RankGathered& answer = answers[at]->assume_value();
      gather.counted(at, answer.stop_at, answer.barriers);
    }
  }
  fault_point(FaultPoint::kCoordinatorRanksGathered);
  CKPT_CO_TRYV(co_await ask(wire::GatherAct::kPauseAt, gather.barrier(), everyone(), kStopAnswer));
  co_return ok();
}

control::Task<Result<GangSnapshot::Answers>> GangSnapshot::ask(wire::GatherAct act, std::uint64_t barrier,
                                                               std::vector<std::size_t> members,
                                                               std::chrono::milliseconds limit) {
  const auto answers = std::make_shared<Answers>(members_.size());
  for (const std::size_t at : members) {
    wire::GatherRank order;
    order.job = members_[at].job;
    order.incarnation = members_[at].incarnation;
    order.set = wish_.set;
    order.act = act;
    order.barrier = barrier;
    control::spawn(parts_.executor, "an order to a rank", ask_one(answers, at, std::move(order), limit));
  }
  while (true) {
    bool are_all_here = true;
    for (const std::size_t at : members) {
      const auto& answer = (*answers)[at];
      are_all_here = are_all_here && answer.has_value();
      if (answer && !*answer) {
        // The image's own failure has more of the reason than the answer that there is no such image.
        if (members_[at].taken && !*members_[at].taken)
          co_return failure_of(at, members_[at].taken->assume_error());
        co_return failure_of(at, answer->assume_error());
      }
    }
    if (are_all_here) co_return *answers;
    if (auto failed = first_failure()) co_return *std::move(failed);
    co_await changed_.wait_until(steady_clock::now() + limit);
  }
}

control::Task<> GangSnapshot::ask_one(std::shared_ptr<Answers> answers, std::size_t at,
                                      wire::GatherRank order, std::chrono::milliseconds limit) {
  const auto self = shared_from_this();
  auto answer = co_await parts_.calls.gather(members_[at].node, std::move(order), limit);
  (*answers)[at].emplace(std::move(answer));
  changed_.notify();
}

std::vector<std::size_t> GangSnapshot::everyone() const {
  std::vector<std::size_t> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::optional<Error> GangSnapshot::first_failure() const {
  for (std::size_t at = 0; at < members_.size(); ++at) {
    const auto& taken = members_[at].taken;
    if (taken && !*taken) return failure_of(at, taken->assume_error());
  }
  return std::nullopt;
}

Error GangSnapshot::failure_of(std::size_t at, const Error& error) const {
  return Error(error.code(),
               fmt::format("Rank {} on {}: {}", members_[at].rank, members_[at].node, error.message()));
}

bool GangSnapshot::are_all_over() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.taken.has_value(); });
}

control::Task<> GangSnapshot::keep_waiting() {
  const auto self = shared_from_this();
  auto next = steady_clock::now() + kRepeated;
  while (!is_over_) {
    co_await changed_.wait_until(next);
    if (is_over_ || steady_clock::now() < next) continue;
    next = steady_clock::now() + kRepeated;
    const auto ignored = std::make_shared<Answers>(members_.size());
    for (const std::size_t at : everyone()) {
      wire::GatherRank order;
      order.job = members_[at].job;
      order.incarnation = members_[at].incarnation;
      order.set = wish_.set;
      order.act = wire::GatherAct::kReady;
      control::spawn(parts_.executor, "an order to a rank",
                     ask_one(ignored, at, std::move(order), kLongestCopy));
    }
  }
}

void GangSnapshot::give_up() {
  for (const Member& member : members_) {
    if (!member.taken) parts_.orders.give_up_soon(member.job, member.node, member.incarnation);
  }
}

control::Task<> GangSnapshot::let_go() {
  const auto self = shared_from_this();
  if (!wish_.holds) co_return;
  for (const Member& member : members_) {
    if (!member.taken || !*member.taken) continue;
    wire::GatherRank order;
    order.job = member.job;
    order.incarnation = member.incarnation;
    order.set = wish_.set;
    order.act = wire::GatherAct::kGoOn;
    const auto told = co_await parts_.calls.gather(member.node, std::move(order), kGoOnAnswer);
    if (!told)
      spdlog::warn("rank {} goes on by itself: {}", job_text(member.job), told.assume_error().to_string());
  }
}

}  // namespace ckpt::coordinator
