// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_snapshot.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/at_once.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestSnapshot{60};
constexpr std::chrono::minutes kLongestCopy{50};  // the time limit for copying data ahead of the pause
constexpr std::chrono::seconds kStopAnswer{20};
constexpr std::chrono::seconds kLettingGo{20};
constexpr std::chrono::seconds kGoOnAnswer{30};
constexpr std::chrono::seconds kRepeated{20};
// The least number of images of a rank that are kept. The previous set must be kept until all images of the
// new set are durable.
constexpr std::uint32_t kKeptAtLeast = 2;

}  // namespace

std::shared_ptr<GangSnapshot> GangSnapshot::create(Dependencies deps, const WholeJob& gang, Wish wish) {
  std::shared_ptr<GangSnapshot> snapshot(new GangSnapshot(std::move(deps), std::move(wish)));
  for (const Job* rank : gang.ranks) {
    Member& member = snapshot->members_.emplace_back();
    member.job = rank->id;
    member.rank = rank->rank_number();
    member.incarnation = rank->incarnation;
    member.node = rank->node();
    member.owner = checkpoint_store_node(*rank, snapshot->wish_.to);
  }
  snapshot->prepare_orders();
  return snapshot;
}

// Prepares the orders to the ranks. If an image fails, its own error is returned, because it explains more
// than the answer that no such image exists.
void GangSnapshot::prepare_orders() {
  std::vector<RankOrders::Member> ranks(members_.begin(), members_.end());
  RankOrders::Purpose purpose;
  purpose.set = wish_.set;
  ranks_ = std::make_shared<RankOrders>(deps_.calls, deps_.executor, purpose, std::move(ranks),
                                        [this](std::optional<std::size_t> member) {
                                          return member ? failure_of_image(*member) : first_failure();
                                        });
}

control::Task<Result<void>> GangSnapshot::run() {
  const auto self = shared_from_this();
  for (const std::size_t at : ranks_->everyone())
    control::spawn(deps_.executor, "an image of a rank", capture(at));
  control::spawn(deps_.executor, "ranks that wait", keep_waiting());
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
  failed_with_ = done.error().code();
  co_await release();
  co_return done;
}

// Takes the image of one rank. A node that still works on a set of a previous coordinator releases that set
// first.
control::Task<> GangSnapshot::capture(std::size_t at) {
  const auto self = shared_from_this();
  const auto deadline = steady_clock::now() + kLettingGo;
  auto captured = co_await order(at);
  while (!captured && is_busy(at, captured.error()) && steady_clock::now() < deadline && !first_failure()) {
    co_await wait_for_change(deps_.jobs);
    captured = co_await order(at);
  }
  members_[at].captured.emplace(std::move(captured));
  changed_.notify();
  ranks_->reevaluate();
}

control::Task<Result<void>> GangSnapshot::order(std::size_t at) {
  const Member& member = members_[at];
  const Job* job = deps_.jobs.find(member.job);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "The job was removed");
  CKPT_CO_TRY(order, deps_.orders.order_of(*job, wish_.to, false));
  order.set = wish_.set;
  order.keep = std::max(order.keep, kKeptAtLeast) + leftovers_of_rank(*job);
  order.holds_after = wish_.holds;
  order.full = wish_.full;
  RunningSnapshot shown(wish_.task, member.node, member.owner);
  shown.set = wish_.set;
  const SnapshotOrders::Outcome outcome =
      co_await deps_.orders.give(std::move(order), std::move(shown), kLongestSnapshot);
  members_[at].has_begun = outcome.has_begun;
  if (!outcome.captured && outcome.captured.error().code() == ErrorCode::kTimedOut)
    deps_.orders.give_up_soon(member.job, member.node, member.incarnation);
  co_return outcome.captured;
}

// Returns how many images of the rank belong to failed sets. These images must not displace usable ones.
std::uint32_t GangSnapshot::leftovers_of_rank(const Job& rank) const {
  const auto gang = find_whole(deps_.jobs, rank.whole());
  if (!gang) return 0;
  const std::vector<Image> left = leftovers_of(deps_.catalog, *gang);
  return static_cast<std::uint32_t>(
      std::count_if(left.begin(), left.end(), [&rank](const Image& image) { return image.job == rank.id; }));
}

bool GangSnapshot::is_busy(std::size_t at, const Error& error) const {
  const Member& member = members_[at];
  return error.code() == ErrorCode::kUnavailable && !member.has_begun && deps_.nodes.connected(member.node);
}

// Waits until every node has reported on its image, which proves that the node has its order. Without the
// order, the node would not understand later requests.
control::Task<Result<void>> GangSnapshot::wait_for_begin() {
  const auto has_begun = [this](const Member& member) {
    const RunningSnapshot* running = deps_.running.find(member.job);
    return running != nullptr && running->has_begun;
  };
  const auto deadline = steady_clock::now() + kLongestCopy;
  while (!std::all_of(members_.begin(), members_.end(), has_begun)) {
    if (auto failed = first_failure()) co_return *std::move(failed);
    if (steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut, "Not all ranks have begun to take their images");
    co_await wait_for_change(deps_.jobs);
  }
  co_return ok();
}

control::Task<Result<void>> GangSnapshot::agree() {
  CKPT_CO_TRYV(co_await wait_for_begin());
  CKPT_CO_TRYV(co_await ranks_->ask(wire::GatherAct::kReady, 0, ranks_->everyone(), kLongestCopy));
  fault_point(FaultPoint::kCoordinatorRanksReady);
  CKPT_CO_TRY(barrier, co_await ranks_->agree());
  fault_point(FaultPoint::kCoordinatorRanksGathered);
  CKPT_CO_TRYV(co_await ranks_->ask(wire::GatherAct::kPauseAt, barrier, ranks_->everyone(), kStopAnswer));
  co_return ok();
}

std::optional<Error> GangSnapshot::first_failure() const {
  for (std::size_t at = 0; at < members_.size(); ++at)
    if (auto failure = failure_of_image(at)) return failure;
  return std::nullopt;
}

std::optional<Error> GangSnapshot::failure_of_image(std::size_t at) const {
  const auto& captured = members_[at].captured;
  if (!captured || *captured) return std::nullopt;
  return ranks_->failure_of(at, captured->error());
}

bool GangSnapshot::are_all_over() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.captured.has_value(); });
}

control::Task<> GangSnapshot::keep_waiting() {
  const auto self = shared_from_this();
  auto next = steady_clock::now() + kRepeated;
  while (!is_over_) {
    co_await changed_.wait_until(next);
    if (is_over_ || steady_clock::now() < next) continue;
    next = steady_clock::now() + kRepeated;
    ranks_->send_to_all(wire::GatherAct::kReady, kLongestCopy);
  }
}

void GangSnapshot::give_up() {
  for (const Member& member : members_) {
    if (!member.captured) deps_.orders.give_up_soon(member.job, member.node, member.incarnation);
  }
}

control::Task<> GangSnapshot::release() {
  const auto self = shared_from_this();
  if (!wish_.holds) co_return;
  std::vector<control::Task<>> told;
  for (std::size_t at = 0; at < members_.size(); ++at) {
    if (members_[at].captured && *members_[at].captured) told.push_back(release_rank(at));
  }
  co_await control::at_once(deps_.executor, "release of a rank", std::move(told));
}

control::Task<> GangSnapshot::release_rank(std::size_t at) {
  const auto self = shared_from_this();
  const Member& member = members_[at];
  wire::GatherRank order;
  order.job = member.job;
  order.incarnation = member.incarnation;
  order.set = wish_.set;
  order.act = wire::GatherAct::kGoOn;
  const auto told = co_await deps_.calls.gather(member.node, std::move(order), kGoOnAnswer);
  if (!told)
    spdlog::warn("rank {} was not released, and continues when its own time limit expires: {}",
                 job_text(member.job), told.error().to_string());
}

}  // namespace ckpt::coordinator
