// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/operation_records.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::coordinator {
namespace {

ImageId id_of(const Image& image) {
  ImageId id;
  id.job = image.job;
  id.version = image.version;
  id.where = image.folder.empty() ? image.node : image.folder;
  return id;
}

std::string name_and_id(const Job& job) {
  return job.spec.name + " (" + job_text(job.id) + ")";
}

}  // namespace

Result<void> OperationRecords::abandon(JobId id, const Error& why) {
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  changed.operation.reset();
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  const Job* job = parts_.jobs.find(id);
  parts_.events.add("snapshot-failed", "job " + name_and_id(*job) + " is not parked: " + why.to_string(),
                    job->node(), id);
  const bool interrupted = !operation.cancelled.empty() || why.code() == ErrorCode::kTimedOut;
  parts_.open.close(id, why, interrupted ? kImageExitInterrupted : kImageExitFailed);
  const Node* node = parts_.nodes.find(job->node());
  parts_.lifecycle.judge_again(id, node);
  parts_.lifecycle.not_parked(id, node, operation.stops);
  stop_after(id, operation);
  return ok();
}

Result<void> OperationRecords::ended(JobId id) {
  fault_point(FaultPoint::kCoordinatorInstanceEnded);
  Job changed = *parts_.jobs.find(id);
  ImageOperation& operation = *changed.operation;
  if (operation.stage == OperationStage::kTaking) {
    const Image before = operation.image;
    const auto taken = parts_.catalog.newest(id, [&](const Image& image) {
      return image.folder == before.folder && image.vault_job == before.vault_job &&
             image.version > before.version && (!image.folder.empty() || image.node == before.node);
    });
    if (!taken)
      return abandon(id, Error(ErrorCode::kCorrupt, "The job ended, and its last image is damaged"));
    operation.image = *taken;
    changed.snapshot = parts_.reports.facts_of(changed, before.node, before.folder);
    operation.ended_ms = taken->barrier_ms;
    changed.fenced = operation.fenced;
  }
  if (operation.ended_ms == 0) operation.ended_ms = wall_clock_ms();
  operation.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - operation.image.barrier_ms);
  if (operation.goal == OperationGoal::kRunning) return to_starting(std::move(changed));
  const std::string why = operation.why;
  return parked(std::move(changed), why);
}

Result<void> OperationRecords::parked(Job job, const std::string& why) {
  const JobId id = job.id;
  const ImageOperation operation = *job.operation;
  job.operation.reset();
  job.state = JobState::kParked;
  job.phase = wire::JobPhase::kExited;
  job.reason = why;
  job.resumes_itself = !operation.by_user;
  job.ended_ms = operation.image.barrier_ms;  // the loss since then, if any, is reported here
  job.rested_ms = 0;
  job.parked_ms = wall_clock_ms();
  const std::string node = job.node();
  const std::string text = fmt::format(
      "job {} rests in {}{}: {}", name_and_id(job), image_text(operation.image),
      operation.lost_ms > 0 ? fmt::format(", {} ms of work are lost", operation.lost_ms) : "", why);
  CKPT_TRYV(parts_.jobs.replace(std::move(job)));
  fault_point(FaultPoint::kCoordinatorParkedDurable);
  parts_.events.add("job-parked", text, node, id);
  if (ImageTask* task = parts_.open.task(id)) task->image = operation.image;
  parts_.open.close(id, std::nullopt, 0);
  stop_after(id, operation);
  return ok();
}

Result<void> OperationRecords::to_starting(Job job) {
  ImageOperation& operation = *job.operation;
  operation.stage = OperationStage::kStarting;
  job.incarnation = operation.fenced + 1;
  if (operation.image.suspect.empty()) end_doubts(job.doubts, operation.fenced);
  // One that was forgotten, and comes back, has none before.
  std::erase_if(job.segments, [](const Segment& s) { return s.incarnation == 0; });
  Segment& segment = job.segments.emplace_back(operation.to_node, job.incarnation);
  segment.image = image_text(operation.image);
  segment.lost_ms = operation.lost_ms;
  for (JobRank& rank : job.ranks) {
    rank.place = Place(operation.to_node, operation.to_gpu);
    rank.pid = 0;
  }
  job.state = JobState::kRestoring;
  job.phase = wire::JobPhase::kStarting;
  job.reason.clear();
  job.movable = false;
  const JobId id = job.id;
  CKPT_TRYV(parts_.jobs.replace(std::move(job)));
  fault_point(FaultPoint::kCoordinatorStartDurable);
  parts_.open.enter(id, "starting");
  return ok();
}

// As its node reports: instead of an image that proved damaged while it was read an older one was used.
Restored OperationRecords::restored_of(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  Restored restored;
  restored.suspect = operation.image.suspect;
  restored.image = operation.image;
  restored.lost_ms = operation.lost_ms;
  restored.place = Place(operation.to_node, operation.to_gpu);
  restored.incarnation = job.incarnation;
  const wire::RestoreReport* used = parts_.reports.restore_of(job);
  const bool same = used == nullptr || used->folder != operation.image.folder ||
                    used->vault_job != operation.image.vault_job || used->version >= operation.image.version;
  if (same) return restored;
  restored.image.version = used->version;
  restored.image.barrier_ms = used->barrier_ms;
  if (const auto listed = parts_.catalog.find(id_of(restored.image))) restored.image = listed->image;
  restored.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - used->barrier_ms);
  restored.note = fmt::format("{} is damaged, an older image was used: {}", image_text(operation.image),
                              used->skipped.empty() ? "its node does not say how" : used->skipped);
  return restored;
}

Result<void> OperationRecords::runs(JobId id) {
  fault_point(FaultPoint::kCoordinatorStarted);
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  const Restored restored = restored_of(changed);
  changed.operation.reset();
  changed.segments.back().image = image_text(restored.image);  // another one may have proved damaged
  changed.segments.back().lost_ms = restored.lost_ms;
  changed.state = JobState::kRunning;
  changed.phase = wire::JobPhase::kRunning;
  changed.resumes_itself = false;
  changed.ended_ms = 0;
  changed.parked_ms = changed.rested_ms = 0;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  const Job* job = parts_.jobs.find(id);
  if (!restored.note.empty()) parts_.events.add("image-damaged", restored.note, operation.to_node, id);
  parts_.events.add(
      operation.verb == "resume" ? "job-resumed" : "job-restored",
      fmt::format("job {} goes on at {} from {} as incarnation {}, {} ms of work are lost{}{}",
                  name_and_id(*job), to_text(restored.place), image_text(restored.image),
                  restored.incarnation, restored.lost_ms, operation.why.empty() ? "" : ": " + operation.why,
                  (restored.note.empty() ? "" : " (" + restored.note + ")") +
                      (restored.suspect.empty() ? "" : " (its image is suspect: " + restored.suspect + ")")),
      operation.to_node, id);
  // The work that is lost since a parked job's image was reported when it was parked; not so the work that an
  // older image lacks.
  const bool is_news = operation.verb == "restore" || !restored.note.empty();
  const bool lost = is_news && restored.lost_ms > 0;
  if (ImageTask* task = parts_.open.task(id)) {
    task->exit_code = lost ? kImageExitRestored : 0;
    task->image = restored.image;
    task->restored = restored;
    if (const wire::RestoreReport* used = parts_.reports.restore_of(*job)) task->fill_ns = used->fill_ns;
  }
  parts_.reports.forget_restore(id);
  parts_.open.close(id, std::nullopt, 0);
  parts_.lifecycle.judge_again(id, parts_.nodes.find(operation.to_node));
  return ok();
}

Result<void> OperationRecords::not_started(JobId id, const Error& why) {
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  changed.operation.reset();
  // One that was forgotten has no image of its own to rest in.
  changed.state = operation.image.job == id ? JobState::kParked : JobState::kFailed;
  changed.phase = wire::JobPhase::kExited;
  changed.resumes_itself = !operation.by_user;
  changed.reason = "it could not be started from " + image_text(operation.image) + ": " + why.to_string();
  changed.fenced = changed.incarnation;
  changed.ended_ms = operation.ended_ms;
  changed.rested_ms = 0;
  // A failed attempt costs no other job its turn.
  if (changed.parked_ms == 0) changed.parked_ms = wall_clock_ms();
  // There is no log of it.
  if (changed.segments.size() > 1)
    changed.segments.pop_back();
  else
    changed.segments.back().incarnation = 0;
  const std::string text =
      "job " + name_and_id(changed) + " rests in " + image_text(operation.image) + ": " + changed.reason;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  parts_.events.add("restore-failed", text, operation.to_node, id);
  parts_.open.close(id, why, operation.stops ? kImageExitInterrupted : kImageExitFailed);
  stop_after(id, operation);
  return ok();
}

void OperationRecords::stop_after(JobId id, const ImageOperation& operation) {
  Job* job = parts_.jobs.find(id);
  if (!operation.stops || job == nullptr) return;
  if (auto stopped = parts_.stops.begin(*job, operation.stop_grace_ms); !stopped)
    spdlog::warn("stopping {}: {}", job_text(id), stopped.error().to_string());
}

}  // namespace ckpt::coordinator
