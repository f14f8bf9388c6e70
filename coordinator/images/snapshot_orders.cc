// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/snapshot_orders.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::uint32_t kKeptWithoutProtection = 2;
constexpr std::chrono::seconds kPeerListing{30};
constexpr std::chrono::seconds kCancelAnswer{30};
constexpr std::chrono::seconds kCheckAnswer{30};

}  // namespace

// Counts the suspect images, including the image to be taken if the job has an open doubt. Such images must
// not displace good ones.
std::uint32_t SnapshotOrders::suspects_of(const Job& job, const std::string& image_job) const {
  const auto listed = deps_.catalog.list(job.id);
  const auto suspects = std::count_if(listed.begin(), listed.end(), [&](const ListedImage& known) {
    return known.image.image_job == image_job && !known.image.suspect.empty();
  });
  return static_cast<std::uint32_t>(suspects) + (open_doubt(job.doubts) != nullptr ? 1 : 0);
}

Result<wire::TakeSnapshot> SnapshotOrders::order_of(const Job& job, const Destination& to, bool end_after) {
  CKPT_TRY(sequence, deps_.numbers.next());
  wire::TakeSnapshot order;
  order.sequence = sequence;
  order.job = job.id;
  order.incarnation = job.incarnation;
  order.folder = to.folder;
  order.image_job = deps_.catalog.image_job_of(job);
  order.keep = job.protection ? job.protection->keep : kKeptWithoutProtection;
  order.keep += suspects_of(job, order.image_job);
  order.spec = job.spec;
  order.spec.incarnation = job.segments.back().incarnation;
  for (std::size_t i = 0; i < std::min(order.spec.ranks.size(), job.ranks.size()); ++i)
    order.spec.ranks[i].gpu_index = job.ranks[i].place.gpu;
  order.end_after = end_after;
  // The new version exceeds those of all listed images, because version numbers of a job are unique across
  // all places that store its images.
  for (const ListedImage& listed : deps_.catalog.list(job.id)) {
    if (listed.image.image_job == order.image_job)
      order.first_version = std::max(order.first_version, listed.image.version + 1);
  }
  return order;
}

control::Task<SnapshotOrders::Outcome> SnapshotOrders::give(wire::TakeSnapshot order, RunningSnapshot shown,
                                                            std::chrono::milliseconds limit) {
  const JobId id = order.job;
  deps_.running.begin(id, shown);
  Outcome outcome;
  if (order.folder.empty()) {
    wire::GrantCheckpointStore request;
    request.image_job = order.image_job;
    request.writes = true;
    request.durable = order.end_after;  // with `end_after`, the image is all that is left of the job
    auto peer = co_await deps_.grants.ask(shown.owner, shown.node, std::move(request));
    outcome.checkpoint_store = peer ? CheckpointStore::kGranted : CheckpointStore::kAway;
    if (!peer) {
      outcome.failed = !order.end_after;  // the snapshot was not ordered
      outcome.captured = std::move(peer).error();
      deps_.running.end(id);
      co_return outcome;
    }
    order.peer = *std::move(peer);
    if (!order.peer.address.empty()) fault_point(FaultPoint::kCoordinatorCheckpointStoreGranted);
  }
  outcome.captured = co_await send(std::move(order), shown.node, limit);
  if (const RunningSnapshot* running = deps_.running.find(id)) {
    outcome.has_begun = running->has_begun;
    outcome.failed = running->failed;
  }
  deps_.running.end(id);
  co_return outcome;
}

control::Task<Result<void>> SnapshotOrders::send(wire::TakeSnapshot order, std::string node,
                                                 std::chrono::milliseconds limit) {
  const JobId id = order.job;
  const wire::CheckpointStorePeer peer = order.peer;
  const Job* job = deps_.jobs.find(id);
  const bool given_up =
      order.end_after && (job == nullptr || !job->operation || !job->operation->cancelled.empty());
  if (given_up) {
    co_await deps_.grants.give_back(peer);
    co_return Error(ErrorCode::kUnavailable, "The snapshot was cancelled before it was ordered");
  }
  const std::string image_job = order.image_job;
  const auto captured = co_await deps_.calls.call(node, std::move(order), limit);
  if (captured && !peer.address.empty()) fault_point(FaultPoint::kCoordinatorSnapshotTaken);
  co_await deps_.grants.give_back(peer);
  if (!captured || peer.address.empty()) co_return captured;
  wire::CheckpointStoreOrder list_order;
  list_order.act = wire::CheckpointStoreAct::kList;
  list_order.image_job = image_job;
  list_order.of_job = true;
  // The list comes from the node that stores the images, because only that node reports which images exist.
  if (auto listed = co_await deps_.calls.call(peer.node, std::move(list_order), kPeerListing); !listed)
    spdlog::warn("the images of {} are not known yet: {}", peer.node, listed.error().to_string());
  co_return captured;
}

control::Task<Result<void>> SnapshotOrders::check(JobId id, Destination to) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const std::string node = job->node();
  const std::string image_job = deps_.catalog.image_job_of(*job);
  if (to.folder.empty() && checkpoint_store_node(*job, to) != node) {
    wire::GrantCheckpointStore request;
    request.image_job = image_job;
    request.writes = true;
    CKPT_CO_TRY(peer, co_await deps_.grants.ask(to.node, node, std::move(request)));
    co_await deps_.grants.give_back(std::move(peer));
    co_return ok();
  }
  wire::CheckpointStoreOrder order;
  order.act = wire::CheckpointStoreAct::kCheck;
  order.folder = to.folder;
  order.image_job = image_job;
  order.of_job = true;
  co_return co_await deps_.calls.call(node, std::move(order), kCheckAnswer);
}

control::Task<Destination> SnapshotOrders::working_destination(JobId id, std::string* error) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !job->protection) co_return Destination();
  Destination wanted = kept_at(*job->protection);
  *error = job->protection->error;
  if (wanted.folder.empty() && wanted.node.empty()) error->clear();
  if (!error->empty()) co_return Destination();
  const auto works = co_await check(id, wanted);
  if (works) co_return wanted;
  *error = works.error().to_string();
  co_return Destination();
}

control::Task<Result<void>> SnapshotOrders::give_up(JobId id, std::string node, Incarnation incarnation) {
  wire::TakeSnapshot order;
  order.job = id;
  order.incarnation = incarnation;
  order.cancel = true;
  co_return co_await deps_.calls.call(std::move(node), std::move(order), kCancelAnswer);
}

void SnapshotOrders::give_up_soon(JobId id, std::string node, Incarnation incarnation) {
  control::spawn(deps_.executor, "cancelling a snapshot of " + job_text(id),
                 give_up_and_log(id, std::move(node), incarnation));
}

control::Task<> SnapshotOrders::give_up_and_log(JobId id, std::string node, Incarnation incarnation) {
  const auto sent = co_await give_up(id, node, incarnation);
  if (!sent)
    spdlog::info("a snapshot of {} on {} was not cancelled: {}", job_text(id), node,
                 sent.error().to_string());
}

}  // namespace ckpt::coordinator
