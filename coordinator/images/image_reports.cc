// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_reports.h"

#include <spdlog/spdlog.h>

namespace ckpt::coordinator {

ImageReports::ImageReports(Dependencies deps) : deps_(deps) {
  using wire::FrameType;
  deps_.frames.subscribe<wire::SnapshotReport>(
      FrameType::kSnapshotReport,
      [this](const Node& node, const wire::SnapshotReport& report) { on_snapshot(node, report); });
  deps_.frames.subscribe<wire::RestoreReport>(
      FrameType::kRestoreReport,
      [this](const Node& node, const wire::RestoreReport& report) { on_restored(node, report); });
  deps_.frames.subscribe<wire::CheckpointStoreContents>(
      FrameType::kCheckpointStoreContents,
      [this](const Node& node, const wire::CheckpointStoreContents& contents) {
        on_contents(node, contents);
      });
}

void ImageReports::on_snapshot(const Node& node, const wire::SnapshotReport& report) {
  const Job* job = deps_.jobs.find(report.job);
  RunningSnapshot* running = deps_.snapshots.find(report.job);
  const bool taken_there = running != nullptr && running->node == node.row.name && running->set == report.set;
  const bool its_business = taken_there || (job != nullptr && job->node() == node.row.name);
  if (job == nullptr || !its_business || report.image_job != deps_.catalog.image_job_of(*job)) {
    spdlog::warn("node {} reports a snapshot of {}, which does not run on that node", node.row.name,
                 job_text(report.job));
    return;
  }
  if (report.phase == wire::SnapshotPhase::kDone) {
    deps_.catalog.measured(taken_there ? running->owner : node.row.name, report);
    taken_[report.job] = report;
  }
  if (!taken_there && report.set != 0 && !job->operation) strayed_.notify(node.row.name, report);
  if (!taken_there) return;
  if (!std::exchange(running->has_begun, true)) deps_.jobs.changed().notify();
  running->failed = report.phase == wire::SnapshotPhase::kFailed;
  ImageTask* task = deps_.tasks.find(running->task);
  if (task == nullptr || !task->open) return;
  task->report = report;
  if (report.phase == wire::SnapshotPhase::kCopying) deps_.tasks.enter(task->id, "copying");
  if (report.phase == wire::SnapshotPhase::kWriting) deps_.tasks.enter(task->id, "writing");
}

void ImageReports::on_restored(const Node& node, const wire::RestoreReport& report) {
  const Job* job = deps_.jobs.find(report.job);
  const bool wanted = job != nullptr && job->operation && job->operation->stage == OperationStage::kStarting;
  if (!wanted || job->node() != node.row.name || job->incarnation != report.incarnation) return;
  restored_[report.job] = report;
  deps_.jobs.changed().notify();
}

const wire::RestoreReport* ImageReports::restore_of(const Job& job) const {
  const auto found = restored_.find(job.id);
  return found == restored_.end() || found->second.incarnation != job.incarnation ? nullptr : &found->second;
}

SnapshotFacts ImageReports::facts_of(const Job& job, const std::string& owner,
                                     const std::string& folder) const {
  SnapshotFacts facts;
  const std::string image_job = deps_.catalog.image_job_of(job);
  const auto listed = deps_.catalog.newest(job.id, [&](const Image& image) {
    return image.folder == folder && image.image_job == image_job && (!folder.empty() || image.node == owner);
  });
  if (listed) facts.image = *listed;
  const auto report = taken_.find(job.id);
  if (report == taken_.end() || report->second.folder != folder ||
      report->second.version < facts.image.version)
    return facts;
  const wire::SnapshotReport& r = report->second;
  facts.image.node = owner;
  facts.image.folder = r.folder;
  facts.image.image_job = r.image_job;
  facts.image.job = job.id;
  facts.image.version = r.version;
  facts.image.barrier_ms = r.barrier_ms;
  facts.image.state_bytes = r.state_bytes;
  facts.pause_ns = r.pause_ns;
  facts.written_bytes = r.written_bytes;
  facts.waited_bytes = r.waited_bytes;
  return facts;
}

void ImageReports::on_contents(const Node& node, const wire::CheckpointStoreContents& contents) {
  for (const wire::ImageRow& row : contents.images) deps_.numbers.seen(row.sequence);
  const auto whole = lists_.add(node.row.name, contents);
  if (!whole) return;
  for (const Image& image : deps_.catalog.apply(node.row.name, *whole))
    deps_.events.add("image-damaged",
                     "image " + image_text(image) + " is damaged: an older one is used instead",
                     node.row.name, image.job);
  deps_.jobs.changed().notify();
}

}  // namespace ckpt::coordinator
