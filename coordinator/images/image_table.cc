// SPDX-License-Identifier: Apache-2.0
// What nodes say of their vaults, and removing images. Snapshots: image_snapshots.cc; operations:
// image_requests.cc, image_operations.cc.
#include "coordinator/images/image_table.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kLookAgain{1};
constexpr std::chrono::seconds kRemoval{120};

}  // namespace

ImageTable::ImageTable(Parts parts)
    : parts_(std::move(parts)),
      catalog_(parts_.store),
      numbers_(parts_.store),
      tasks_(parts_.executor, parts_.store.id_tag()) {
  take_frames();
}

void ImageTable::take_frames() {
  parts_.nodes.take(wire::FrameType::kSnapshotReport,
                    [this](const Node& node, std::span<const std::byte> body) -> Result<void> {
                      CKPT_TRY(report, wire::decode<wire::SnapshotReport>(body));
                      on_report(node, report);
                      return ok();
                    });
  parts_.nodes.take(wire::FrameType::kRestoreReport,
                    [this](const Node& node, std::span<const std::byte> body) -> Result<void> {
                      CKPT_TRY(report, wire::decode<wire::RestoreReport>(body));
                      on_restored(node, report);
                      return ok();
                    });
  parts_.nodes.take(wire::FrameType::kVaultContents,
                    [this](const Node& node, std::span<const std::byte> body) -> Result<void> {
                      CKPT_TRY(contents, wire::decode<wire::VaultContents>(body));
                      on_contents(node, contents);
                      return ok();
                    });
  parts_.jobs.set_fence([this](const Node& node, JobId id, Incarnation up_to) {
    spdlog::warn("node {} has an instance of {} that must not run any more: it is ended", node.row.name,
                 job_text(id));
    wire::StopJob message;
    message.job = id;
    message.incarnation = up_to;
    parts_.nodes.tell(node.row.name, message);
  });
}

Result<void> ImageTable::load() {
  CKPT_TRYV(catalog_.load());
  numbers_.seen(catalog_.last_sequence());
  for (const auto& [id, job] : parts_.jobs.all()) {
    if (job.operation) drive(id);
    if (job.protection)
      schedule_.protect(id, job.protection->every_ms, job.protection->begun_ms, job.protection->failures);
  }
  control::spawn(parts_.executor, "the schedule of snapshots", run_schedule());
  control::spawn(parts_.executor, "images of ended jobs", collect_images());
  return ok();
}

bool ImageTable::is_readable(const Image& image) const {
  if (image.folder.empty()) return parts_.nodes.connected(image.node);
  const auto& nodes = parts_.nodes.all();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& entry) { return entry.second.connected(); });
}

std::optional<Image> ImageTable::newest(JobId job) const {
  return catalog_.newest(job, [this](const Image& image) { return is_readable(image); });
}

control::Task<> ImageTable::wait_for_news() const {
  co_await parts_.jobs.changed().wait_until(std::chrono::steady_clock::now() + kLookAgain);
}

void ImageTable::on_report(const Node& node, const wire::SnapshotReport& report) {
  const Job* job = parts_.jobs.find(report.job);
  const auto running = snapshots_.find(report.job);
  const bool taken_there = running != snapshots_.end() && running->second.node == node.row.name;
  const bool its_business = taken_there || (job != nullptr && job->node() == node.row.name);
  if (job == nullptr || !its_business || report.vault_job != catalog_.vault_job_of(*job)) {
    spdlog::warn("node {} reports on a snapshot of {}, which is not its business", node.row.name,
                 job_text(report.job));
    return;
  }
  if (report.phase == wire::SnapshotPhase::kDone) {
    catalog_.measured(taken_there ? running->second.owner : node.row.name, report);
    reports_[report.job] = report;
  }
  if (!taken_there) return;
  running->second.failed = report.phase == wire::SnapshotPhase::kFailed;
  ImageTask* task = tasks_.find(running->second.task);
  if (task == nullptr || !task->open) return;
  task->report = report;
  if (report.phase == wire::SnapshotPhase::kCopying) tasks_.enter(task->id, "copying");
  if (report.phase == wire::SnapshotPhase::kWriting) tasks_.enter(task->id, "writing");
}

void ImageTable::on_restored(const Node& node, const wire::RestoreReport& report) {
  const Job* job = parts_.jobs.find(report.job);
  const bool wanted = job != nullptr && job->operation && job->operation->stage == OperationStage::kStarting;
  if (!wanted || job->node() != node.row.name || job->incarnation != report.incarnation) return;
  restored_[report.job] = report;
  parts_.jobs.node_changed();
}

// Of the instance that the job has now.
const wire::RestoreReport* ImageTable::restore_report_of(const Job& job) const {
  const auto found = restored_.find(job.id);
  return found == restored_.end() || found->second.incarnation != job.incarnation ? nullptr : &found->second;
}

void ImageTable::on_contents(const Node& node, const wire::VaultContents& contents) {
  for (const wire::ImageRow& row : contents.images) numbers_.seen(row.sequence);
  const auto whole = lists_.add(node.row.name, contents);
  if (!whole) return;
  for (const Image& image : catalog_.take(node.row.name, *whole))
    parts_.events.add("image-damaged",
                      "image " + image_text(image) + " is damaged: an older one is used instead",
                      node.row.name, image.job);
  parts_.jobs.node_changed();
}

control::Task<Result<void>> ImageTable::remove(ImageId id, bool force) {
  CKPT_CO_TRY(listed, catalog_.find(id));
  const Image image = listed.image;
  const Job* job = parts_.jobs.find(image.job);
  if (job != nullptr && job->operation)
    co_return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is on its way into or out of an image");
  const auto best = catalog_.newest(image.job, [](const Image&) { return true; });
  const bool rests =
      job != nullptr && job->state == JobState::kParked && best && image_text(*best) == image_text(image);
  if (rests && !force)
    co_return Error(ErrorCode::kRefused, "Job " + job->spec.name + " rests in " + image_text(image) +
                                             " and would be lost (--force removes it nevertheless)");
  wire::VaultOrder order;
  order.act = wire::VaultAct::kRemoveVersion;
  order.folder = image.folder;
  order.vault_job = image.vault_job;
  order.version = image.version;
  order.of_job = true;
  CKPT_CO_TRYV(co_await parts_.nodes.call(image.node, order, kRemoval));
  parts_.events.add("image-removed", "image " + image_text(image) + " was removed", image.node, image.job);
  co_return ok();
}

}  // namespace ckpt::coordinator
