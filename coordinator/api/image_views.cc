// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/image_views.h"

#include <algorithm>

#include "coordinator/api/optional_text.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

std::optional<std::uint64_t> number_if_any(std::uint64_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

// Returns the storage tier where the image's content is stored.
std::string tier_of(const ListedImage& listed) {
  if (listed.memory_bytes == 0) return "disk";
  return listed.disk_bytes == 0 ? "memory" : "memory+disk";
}

api::SnapshotReport snapshot_report_view(const wire::SnapshotReport& r) {
  return {.version = number_if_any(r.version),
          .parent = number_if_any(r.parent),
          .barrier_ms = r.barrier_ms == 0 ? std::nullopt : std::optional(r.barrier_ms),
          .pause_ms = ms_if_known(r.pause_ns),
          .total_ms = ms_if_known(r.total_ns),
          .state_bytes = r.state_bytes,
          .dirty_bytes = r.dirty_bytes,
          .written_bytes = r.written_bytes,
          .host_bytes = r.host_bytes,
          .waited_bytes = r.waited_bytes};
}

std::optional<api::Restored> restored_view(const ImageTask& task) {
  if (!task.restored) return std::nullopt;
  const Restored& restored = *task.restored;
  return api::Restored{.image = image_text(restored.image),
                       .at = task.places.empty() ? to_text(restored.place) : task.places,
                       .incarnation = restored.incarnation,
                       .lost_ms = restored.lost_ms,
                       .fill_ms = ms_if_known(task.fill_ns),
                       .suspect = text_if_any(restored.suspect),
                       .note = text_if_any(restored.note)};
}

}  // namespace

api::Image image_view(const ListedImage& listed, const Job* job, bool readable) {
  const Image& image = listed.image;
  api::Image view;
  view.id = image_text(image);
  view.job = job_text(image.job);
  if (job != nullptr) view.job_name = job->spec.name;
  view.version = image.version;
  view.sequence = number_if_any(image.sequence);
  view.set = number_if_any(image.set);
  view.parent = number_if_any(listed.parent);
  view.node = image.node;
  view.folder = text_if_any(image.folder);
  view.created = time_text(image.barrier_ms);
  view.age_ms = std::max<std::int64_t>(0, wall_clock_ms() - image.barrier_ms);
  view.incarnation = listed.incarnation;
  view.state_bytes = image.state_bytes;
  view.new_bytes = listed.written_bytes;
  // A job that did not continue after its image has no pause time.
  if (listed.pause_ns != 0) view.pause_ms = ms_if_known(listed.pause_ns);
  view.tier = tier_of(listed);
  view.memory_bytes = listed.memory_bytes;
  if (listed.disk_bytes + listed.memory_bytes != 0) view.disk_bytes = listed.disk_bytes;
  view.gpu_model = text_if_any(image.gpu_model);
  view.damaged = listed.damaged;
  view.suspect = text_if_any(image.suspect);
  view.readable = readable;
  return view;
}

api::ImageTask task_view(const ImageTask& task) {
  api::ImageTask view;
  view.id = task_text(task.id);
  view.verb = task.verb;
  view.job = job_text(task.job);
  view.job_name = task.job_name;
  view.open = task.open;
  view.state = task.state;
  if (!task.open) view.exit_code = task.exit_code;
  if (task.error) view.error = task.error->to_string();
  if (task.image) view.image = image_text(*task.image);
  if (task.report) view.report = snapshot_report_view(*task.report);
  view.restored = restored_view(task);
  view.images.reserve(task.images.size());
  for (const Image& image : task.images) view.images.push_back(image_text(image));
  return view;
}

api::Protected protected_view(JobId id, const Protected& done, bool dry_run) {
  const Protection& p = done.protection;
  return {.job = job_text(id),
          .every_ms = p.every_ms,
          .to = text_if_any(p.folder.empty() ? p.node : p.folder),
          .keep = p.keep,
          .expected_pause_ms = done.expected_pause_ms,
          .note = text_if_any(done.note),
          .dry_run = dry_run};
}

api::RestorePlan restore_plan_view(const JobRestorePlan& plan) {
  api::RestorePlan view;
  view.image = image_text(plan.images.front());
  view.created = time_text(plan.barrier_ms);
  view.to = plan.to;
  view.runs = plan.runs;
  view.lost_ms = plan.lost_ms;
  view.possible = plan.obstacle.empty();
  view.reason = text_if_any(plan.obstacle);
  return view;
}

}  // namespace ckpt::coordinator
