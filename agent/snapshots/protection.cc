// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/protection.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/migration/target_check.h"
#include "agent/snapshots/restore_report.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/store/local/version.h"

namespace ckpt::agent::protect {
namespace {

constexpr std::size_t kMaxFolders = 64;

}  // namespace

Protection::Protection(Parts parts)
    : parts_(std::move(parts)),
      context_{parts_.context, pool_,
               [this](const wire::SnapshotReport& report) { parts_.coordinator.send(report); }},
      folders_{""} {
  CoordinatorLink& link = parts_.coordinator;
  const auto executor = parts_.context.executor;
  link.subscribe(wire::FrameType::kTakeSnapshot,
                 [this, executor](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(request, wire::decode<wire::TakeSnapshot>(body));
                   control::spawn(executor, "take snapshot", take_snapshot(std::move(request)));
                   return ok();
                 });
  link.subscribe(
      wire::FrameType::kGatherRank, [this, executor](std::span<const std::byte> body) -> Result<void> {
        CKPT_TRY(order, wire::decode<wire::GatherRank>(body));
        const bool is_for_move = order.migration != 0;
        control::spawn(executor, "gather rank",
                       is_for_move ? parts_.moves.gather(std::move(order)) : gather(std::move(order)));
        return ok();
      });
  link.subscribe(wire::FrameType::kRestoreImage,
                 [this, executor](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(request, wire::decode<wire::RestoreImage>(body));
                   control::spawn(executor, "restore image", restore_image(std::move(request)));
                   return ok();
                 });
  link.subscribe(wire::FrameType::kCheckpointStoreOrder,
                 [this, executor](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(order, wire::decode<wire::CheckpointStoreOrder>(body));
                   control::spawn(executor, "checkpoint store order", obey(std::move(order)));
                   return ok();
                 });
  link.subscribe(wire::FrameType::kGrantCheckpointStore,
                 [this, executor](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(request, wire::decode<wire::GrantCheckpointStore>(body));
                   control::spawn(executor, "grant checkpoint store", grant(std::move(request)));
                   return ok();
                 });
  link.subscribe(wire::FrameType::kReadImage,
                 [this, executor](std::span<const std::byte> body) -> Result<void> {
                   CKPT_TRY(request, wire::decode<wire::ReadImage>(body));
                   control::spawn(executor, "read image", read_image(std::move(request)));
                   return ok();
                 });
  link.at_each_connection([this] {
    report_all();
    parts_.snapshots.repeat_reports();
  });
}

Protection::~Protection() {
  pool_.join();
}

Result<CheckpointStorePlace> Protection::place_of(const std::string& folder) const {
  CheckpointStorePlace place;
  place.word = folder;
  place.path = folder.empty() ? parts_.context.config.checkpoint_store_folder() : folder;
  place.limit_bytes =
      folder.empty() ? std::uint64_t{parts_.context.config.checkpoint_store_limit_mib} << 20 : 0;
  if (!place.path.starts_with('/'))
    return Error(ErrorCode::kInvalidArgument,
                 "A checkpoint store's folder must be an absolute path, not " + folder);
  if (folder.empty()) {
    place.access.memory = parts_.context.config.checkpoint_store_memory_folder();
    place.access.memory_limit_bytes = parts_.context.config.checkpoint_store_memory_limit_mib << 20;
  }
  return place;
}

Result<CheckpointStorePlace> Protection::place_of(const std::string& folder,
                                                  const wire::CheckpointStorePeer& peer) const {
  if (peer.address.empty()) return place_of(folder);
  if (!folder.empty() || !is_safe_name(peer.node))
    return Error(ErrorCode::kInvalidArgument,
                 "A checkpoint store on another node must be specified by node, not by folder");
  CheckpointStorePlace place;
  place.path = peer.node;
  place.limit_bytes = peer.limit_bytes;
  place.access.peer_address = peer.address;
  place.access.peer_token = peer.token;
  return place;
}

Task<> Protection::take_snapshot(wire::TakeSnapshot request) {
  const std::uint64_t id = request.request_id;
  if (request.cancel) {
    const auto given_up = co_await give_up(request.job, request.incarnation);
    co_return parts_.coordinator.reply(id, given_up);
  }
  const std::string folder = request.folder;
  const std::string image_job = request.sequence == 0 ? "" : request.image_job;
  const bool here = request.peer.address.empty();
  auto outcome = co_await snapshot(std::move(request));
  if (here) co_await report_contents(folder, image_job);
  parts_.coordinator.reply(id, outcome);
}

Task<Result<void>> Protection::snapshot(wire::TakeSnapshot request) {
  CKPT_CO_TRY(place, place_of(request.folder, request.peer));
  CKPT_CO_TRYV(checkpoint_store::check_job_name(request.image_job));
  const std::string name = "Job " + wire::job_text(request.job);
  // A restarted coordinator that repeats its order also gets this answer, whether or not the job has left for
  // its image. The coordinator then waits.
  if (is_stored(request.job))
    co_return Error(ErrorCode::kUnavailable, "A snapshot of " + name + " is being taken");
  auto job = parts_.context.jobs.running_as(request.job, request.incarnation);
  if (!job || !job->keeper()) co_return Error(ErrorCode::kNotFound, name + " does not run on this node");
  if (parts_.moves.is_moving(request.job)) co_return Error(ErrorCode::kRefused, name + " is being moved");
  if (!request.fits(job->record().spec))
    co_return Error(ErrorCode::kNotSupported,
                    name + " is one of several ranks, which can only be stored together");
  if (job->record().spec.mode == MigrationMode::kAdopted)
    co_return Error(ErrorCode::kNotSupported, name + " was adopted: start it under gpumigrate to store it");
  if (folders_.size() < kMaxFolders && request.peer.address.empty()) folders_.insert(request.folder);
  const wire::JobId id = request.job;
  auto session = std::make_shared<SnapshotSession>(context_, std::move(request), place, job);
  parts_.snapshots.add(id, session);
  remembered_.emplace(id, job->gpu());
  auto captured = co_await session->run();
  if (session->is_holding()) {
    control::spawn(parts_.context.executor, "rank waits behind its image", hold(session, id));
  } else {
    snapshot_is_over(id);
  }
  co_return captured;
}

Task<> Protection::hold(std::shared_ptr<SnapshotSession> session, wire::JobId job) {
  co_await session->hold();
  snapshot_is_over(job);
}

void Protection::snapshot_is_over(wire::JobId job) {
  parts_.snapshots.remove(job);
  erase_jobs_that_left();  // called here, because the job may have ended in the meantime
}

Task<> Protection::gather(wire::GatherRank order) {
  const std::uint64_t id = order.request_id;
  const auto session = parts_.snapshots.find(order.job);
  const bool is_here =
      session && session->set() == order.set && session->incarnation() == order.incarnation && order.set != 0;
  if (!is_here)
    co_return parts_.coordinator.reply(
        id, Error(ErrorCode::kNotFound,
                  "No image of rank " + wire::job_text(order.job) + " is being taken on this node"));
  auto gathered = co_await session->gather(std::move(order));
  if (!gathered) co_return parts_.coordinator.reply(id, std::move(gathered).error());
  wire::RankGathered answer = *std::move(gathered);
  answer.request_id = id;
  parts_.coordinator.send(answer);
}

// Sends JobLeft to the movers of jobs that left. An open snapshot stores its fingerprints when it finishes,
// so its mover gets JobLeft after that.
void Protection::erase_jobs_that_left() {
  if (remembered_.empty()) return;
  std::set<JobOnGpu> here;
  for (const auto& job : parts_.context.jobs.all())
    if (!job->ended()) here.emplace(job->id(), job->gpu());
  std::erase_if(remembered_, [&](const JobOnGpu& place) {
    if (here.contains(place) || is_stored(place.first)) return false;
    mover::JobLeft left;
    left.job = place.first;
    // A mover that is not running has no snapshots to drop.
    if (auto mover = parts_.context.gpus.mover_of(place.second)) (void)(*mover)->send(left);
    return true;
  });
}

Task<Result<void>> Protection::give_up(wire::JobId job, wire::Incarnation incarnation) {
  const auto session = parts_.snapshots.find(job);
  if (!session || session->incarnation() != incarnation)
    co_return Error(ErrorCode::kNotFound,
                    "No snapshot of job " + wire::job_text(job) + " is being taken on this node");
  co_return co_await session->cancel();
}

Task<> Protection::restore_image(wire::RestoreImage request) {
  const std::uint64_t id = request.request_id;
  auto outcome = co_await restore(std::move(request));
  parts_.coordinator.reply(id, outcome);
}

Task<Result<void>> Protection::restore(wire::RestoreImage request) {
  CKPT_CO_TRY(place, place_of(request.folder, request.peer));
  CKPT_CO_TRYV(checkpoint_store::check_job_name(request.image_job));
  CKPT_CO_TRYV(check_spec(parts_.context.gpus, request.spec));
  if (request.spec.mode == MigrationMode::kAdopted)
    co_return Error(ErrorCode::kNotSupported, "An adopted process cannot be restored from an image");
  const Instance instance(request.spec.job, request.spec.incarnation);
  if (restores_.contains(instance))
    co_return Error(ErrorCode::kUnavailable,
                    "Job " + wire::job_text(request.spec.job) + " is being restored");
  // A coordinator that has not received the answer repeats its order. The instance may have ended since.
  for (const auto& there : parts_.context.jobs.all()) {
    if (there->id() != instance.first || there->started_as() != instance.second) continue;
    if (there->unknown()) co_return Error(ErrorCode::kUnavailable, there->instance().reason);
    if (!there->record().ran) continue;
    report_restored(*there);
    co_return ok();
  }
  if (request.asks_only)
    co_return Error(ErrorCode::kNotFound, "Job " + wire::job_text(request.spec.job) +
                                              " was not restored from an image on this node");
  if (folders_.size() < kMaxFolders && request.peer.address.empty()) folders_.insert(request.folder);
  auto session = std::make_shared<RestoreSession>(context_, std::move(request), place);
  restores_.emplace(instance, session);
  auto restored = co_await session->run();
  restores_.erase(instance);
  for (AsyncEvent* waiter : restore_waiters_) waiter->notify();
  if (const auto runs = parts_.context.jobs.running_as(instance.first, instance.second); restored && runs)
    report_restored(*runs);
  co_return restored;
}

void Protection::give_up_restores(wire::JobId job, wire::Incarnation up_to) {
  for (const auto& [instance, session] : restores_) {
    if (instance.first == job && instance.second <= up_to) session->give_up();
  }
}

Task<Result<void>> Protection::wait_for_restores(wire::JobId job, wire::Incarnation up_to,
                                                 Milliseconds timeout) {
  const auto is_under_way = [this, job, up_to] {
    return std::any_of(restores_.begin(), restores_.end(), [job, up_to](const auto& restore) {
      return restore.first.first == job && restore.first.second <= up_to;
    });
  };
  AsyncEvent ended(parts_.context.executor);
  const auto waiter = restore_waiters_.insert(restore_waiters_.end(), &ended);
  const auto until = std::chrono::steady_clock::now() + timeout;
  bool in_time = true;
  while (in_time && is_under_way()) in_time = co_await ended.wait(until);
  restore_waiters_.erase(waiter);
  if (!is_under_way()) co_return ok();
  co_return Error(ErrorCode::kUnavailable,
                  "Job " + wire::job_text(job) + " is being restored, and the restore has not stopped yet");
}

Task<> Protection::obey(wire::CheckpointStoreOrder order) {
  const std::uint64_t id = order.request_id;
  const std::string folder = order.folder;
  const std::string image_job = order.of_job ? order.image_job : "";
  auto place = place_of(folder);
  if (!place) co_return parts_.coordinator.reply(id, std::move(place).error());
  const bool keeps = order.act != wire::CheckpointStoreAct::kCheck;
  if (keeps && folders_.size() < kMaxFolders) folders_.insert(folder);
  const CheckpointStorePlace where = *std::move(place);
  const auto act = [&where, &order] { return perform(where, order); };
  auto outcome = co_await offload(pool_, act);
  if (keeps) co_await report_contents(folder, image_job);
  parts_.coordinator.reply(id, outcome);
}

Task<> Protection::grant(wire::GrantCheckpointStore request) {
  const std::uint64_t id = request.request_id;
  if (!request.revoke.empty()) {
    const auto revoked = co_await parts_.server->revoke(std::move(request.revoke));
    co_return parts_.coordinator.reply(id, revoked);
  }
  fault_point(FaultPoint::kCheckpointStoreAsked);
  auto outcome = co_await granted(std::move(request));
  if (!outcome) co_return parts_.coordinator.reply(id, std::move(outcome).error());
  wire::CheckpointStoreGrant grant = *std::move(outcome);
  grant.request_id = id;
  fault_point(FaultPoint::kCheckpointStoreGranted);
  parts_.coordinator.send(grant);
}

Task<Result<wire::CheckpointStoreGrant>> Protection::granted(wire::GrantCheckpointStore request) {
  CKPT_CO_TRYV(checkpoint_store::check_job_name(request.image_job));
  CKPT_CO_TRY(place, place_of(""));
  wire::CheckpointStoreGrant grant;
  if (place.limit_bytes != 0) {
    const auto look = [&place, &request] { return bytes_of_others(place, request.image_job); };
    CKPT_CO_TRY(others, co_await offload(pool_, look));
    grant.limit_bytes = std::max<std::uint64_t>(1, place.limit_bytes - std::min(place.limit_bytes, others));
  }
  checkpoint_store_server::CheckpointStoreOrder order;
  order.job = request.image_job;
  order.writes = request.writes;
  order.into_memory = request.writes && !request.durable && place.access.memory_limit_bytes > 0;
  order.lasts_ms = request.lasts_ms;
  order.limit_bytes = grant.limit_bytes;
  CKPT_CO_TRY(made, co_await parts_.server->grant(std::move(order)));
  grant.address = made.address;
  grant.token = std::move(made.token);
  co_return grant;
}

Task<> Protection::read_image(wire::ReadImage request) {
  const std::uint64_t id = request.request_id;
  auto place = place_of(request.folder);
  if (!place) co_return parts_.coordinator.reply(id, std::move(place).error());
  const CheckpointStorePlace where = *std::move(place);
  const auto look = [&where, &request] { return read_version(where, request.image_job, request.version); };
  auto stored = co_await offload(pool_, look);
  if (!stored) co_return parts_.coordinator.reply(id, std::move(stored).error());
  wire::ImageFacts facts;
  facts.request_id = id;
  facts.spec = std::move(stored->job.spec);
  parts_.coordinator.send(facts);
}

Task<> Protection::report_contents(std::string folder, std::string image_job) {
  auto place = place_of(folder);
  if (!place) co_return;
  const CheckpointStorePlace where = *std::move(place);
  const auto look = [&where, &image_job] { return list_checkpoint_store(where, image_job); };
  auto contents = co_await offload(pool_, look);
  if (contents) {
    for (const wire::CheckpointStoreContents& part : *contents) parts_.coordinator.send(part);
  } else {
    spdlog::warn("checkpoint store not listed: folder {} reason {}", where.path,
                 contents.error().to_string());
  }
}

void Protection::report_restored(const Job& job) {
  if (const auto report = read_restore_report(job.folder())) parts_.coordinator.send(*report);
}

void Protection::report_all() {
  for (const auto& job : parts_.context.jobs.all())
    if (!job->ended()) report_restored(*job);
  for (const std::string& folder : folders_)
    control::spawn(parts_.context.executor, "checkpoint store contents", report_contents(folder));
}

}  // namespace ckpt::agent::protect
