// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/image_json.h"

#include "coordinator/requests/body_reader.h"
#include "coordinator/state/doubt.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kLongestFolder = 4096;
constexpr std::int64_t kMinEveryMs = 1'000;
constexpr std::int64_t kMaxEveryMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxKept = 1000;

json age_ms(std::int64_t unix_ms) {
  return std::max<std::int64_t>(0, wall_clock_ms() - unix_ms);
}

json ms_if_known(std::int64_t nanos) {
  return nanos < 0 ? json() : json(static_cast<double>(nanos) / kNanosPerMs);
}

json report_of(const wire::SnapshotReport& r) {
  return {{"version", r.version == 0 ? json() : json(r.version)},
          {"parent", r.parent == 0 ? json() : json(r.parent)},
          {"barrier_ms", r.barrier_ms == 0 ? json() : json(r.barrier_ms)},
          {"pause_ms", ms_if_known(r.pause_ns)},
          {"total_ms", ms_if_known(r.total_ns)},
          {"state_bytes", r.state_bytes},
          {"dirty_bytes", r.dirty_bytes},
          {"written_bytes", r.written_bytes},
          {"host_bytes", r.host_bytes},
          {"waited_bytes", r.waited_bytes}};
}

}  // namespace

Result<void> check_destination(const std::string& to) {
  const bool up = ("/" + to + "/").find("/../") != std::string::npos;
  if (to.size() > kLongestFolder || up)
    return Error(ErrorCode::kInvalidArgument, "Field to must be a node, or the absolute path of a folder");
  return ok();
}

Result<ProtectRequest> protect_request_of(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  ProtectRequest wish;
  const auto every = body.integer("every_ms", kMinEveryMs, kMaxEveryMs);
  wish.to = body.text("to").value_or("");
  wish.keep = static_cast<std::uint32_t>(body.integer("keep", 1, kMaxKept).value_or(wish.keep));
  wish.force = body.boolean("force").value_or(false);
  wish.dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(check_destination(wish.to));
  if (!every) return Error(ErrorCode::kInvalidArgument, "Field every_ms is missing");
  wish.every_ms = *every;
  return wish;
}

json protected_json(JobId id, const Protected& done, const ProtectRequest& wish) {
  const Protection& p = done.protection;
  return {{"job", job_text(id)},
          {"every_ms", p.every_ms},
          {"to", p.folder.empty() && p.node.empty() ? json() : json(p.folder.empty() ? p.node : p.folder)},
          {"keep", p.keep},
          {"expected_pause_ms", done.expected_pause_ms ? json(*done.expected_pause_ms) : json()},
          {"note", done.note.empty() ? json() : json(done.note)},
          {"dry_run", wish.dry_run}};
}

// Where it lies.
std::string tier_of(const ListedImage& listed) {
  if (listed.memory_bytes == 0) return "disk";
  return listed.disk_bytes == 0 ? "memory" : "memory+disk";
}

json image_json(const ListedImage& listed, const Job* job, bool readable) {
  const Image& image = listed.image;
  return {{"id", image_text(image)},
          {"job", job_text(image.job)},
          {"job_name", job == nullptr ? json() : json(job->spec.name)},
          {"version", image.version},
          {"sequence", image.sequence == 0 ? json() : json(image.sequence)},
          {"set", image.set == 0 ? json() : json(image.set)},
          {"parent", listed.parent == 0 ? json() : json(listed.parent)},
          {"node", image.node},
          {"folder", text_or_null(image.folder)},
          {"created", time_text(image.barrier_ms)},
          {"age_ms", age_ms(image.barrier_ms)},
          {"incarnation", listed.incarnation},
          {"state_bytes", image.state_bytes},
          {"new_bytes", listed.written_bytes},
          {"pause_ms", listed.pause_ns == 0 ? json() : ms_if_known(listed.pause_ns)},  // it did not go on
          {"tier", tier_of(listed)},
          {"memory_bytes", listed.memory_bytes},
          {"disk_bytes", listed.disk_bytes + listed.memory_bytes == 0 ? json() : json(listed.disk_bytes)},
          {"gpu_model", text_or_null(image.gpu_model)},
          {"damaged", listed.damaged},
          {"suspect", text_or_null(image.suspect)},
          {"readable", readable}};
}

json task_json(const ImageTask& task) {
  json out = {{"id", task_text(task.id)},
              {"verb", task.verb},
              {"job", job_text(task.job)},
              {"job_name", task.job_name},
              {"open", task.open},
              {"state", task.state},
              {"exit_code", task.open ? json() : json(task.exit_code)},
              {"error", task.error ? json(task.error->to_string()) : json()},
              {"image", task.image ? json(image_text(*task.image)) : json()},
              {"report", task.report ? report_of(*task.report) : json()},
              {"restored", json()}};
  json images = json::array();
  for (const Image& image : task.images) images.push_back(image_text(image));
  out["images"] = std::move(images);
  if (task.restored)
    out["restored"] = {{"image", image_text(task.restored->image)},
                       {"at", task.places.empty() ? to_text(task.restored->place) : task.places},
                       {"incarnation", task.restored->incarnation},
                       {"lost_ms", task.restored->lost_ms},
                       {"fill_ms", ms_if_known(task.fill_ns)},
                       {"suspect", text_or_null(task.restored->suspect)},
                       {"note", text_or_null(task.restored->note)}};
  return out;
}

json restore_plan_json(const RestorePlan& plan) {
  return {{"dry_run", true},
          {"image", image_text(plan.image)},
          {"created", time_text(plan.image.barrier_ms)},
          {"to", to_text(plan.place)},
          {"runs", plan.runs},
          {"lost_ms", plan.lost_ms},
          {"possible", plan.obstacle.empty()},
          {"reason", text_or_null(plan.obstacle)}};
}

}  // namespace ckpt::coordinator
