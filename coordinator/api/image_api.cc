// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/image_api.h"

#include <algorithm>
#include <array>

#include "coordinator/api/image_views.h"
#include "coordinator/api/job_requests.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/authorize.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kVerbs = {"protect", "unprotect", "snapshot",
                                                    "suspend", "restore",   "resume"};

}  // namespace

bool ImageApi::takes(const HttpRequest& request) const {
  const std::string& what = request.path[1];
  if (what == "images" || what == "tasks") return true;
  if (request.path.size() == 4) {
    const Job* job = deps_.jobs.find(request.path[2]);
    const bool is_of_gang = job == nullptr ? deps_.jobs.find_whole(request.path[2]).has_value()
                                           : job->spec.gang.id != 0 && request.path[3] == "restore";
    if (is_of_gang) return false;
  }
  return what == "jobs" && request.path.size() == 4 && is_post(request) &&
         std::find(kVerbs.begin(), kVerbs.end(), request.path[3]) != kVerbs.end();
}

control::Task<ImageApi::Answer> ImageApi::handle(HttpRequest request) {
  const std::string& what = request.path[1];
  const std::size_t pieces = request.path.size();
  if (what == "jobs") co_return co_await of_job(std::move(request));
  if (what == "images" && pieces == 2 && is_get(request)) co_return list(request);
  if (what == "images" && pieces == 4 && request.path[3] == "remove" && is_post(request))
    co_return co_await remove(std::move(request));
  if (what == "tasks" && pieces == 3 && is_get(request)) co_return co_await task(std::move(request));
  co_return no_such_call(request);
}

ImageApi::Answer ImageApi::list(const HttpRequest& request) const {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_image_cursor(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument,
                 "Parameter \"after\" must be the value \"next\" of the previous page");
  json out = json::array();
  const auto add = [&](const std::vector<ListedImage>& images) {
    for (const ListedImage& listed : images)
      out.push_back(record::to_answer(
          image_view(listed, deps_.jobs.find(listed.image.job), deps_.finder.is_readable(listed.image))));
  };
  if (page.limit == 0) {
    add(deps_.catalog.list());
    return to_response(200, out);
  }
  const ImageCatalog::Page found = deps_.catalog.page(after, page.limit);
  add(found.images);
  const json next = found.more ? json(cursor_text(found.images.back())) : json();
  return to_response(200, {{"images", std::move(out)}, {"next", next}});
}

control::Task<ImageApi::Answer> ImageApi::remove(HttpRequest request) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const bool force = body.boolean("force").value_or(false);
  CKPT_CO_TRYV(body.finish());
  const auto id = parse_image_id(request.path[2]);
  if (!id)
    co_return Error(ErrorCode::kInvalidArgument,
                    "\"" + request.path[2] + "\" is not the id of an image: use one like j3.v12@node-a");
  CKPT_CO_TRYV(co_await deps_.removals.remove(*id, force));
  co_return to_response(200, {{"removed", request.path[2]}});
}

ImageApi::Answer ImageApi::show(TaskId id, unsigned status) {
  const ImageTask* task = deps_.tasks.find(id);
  if (task == nullptr)
    return Error(ErrorCode::kNotFound,
                 "There is no task " + task_text(id) +
                     " (or it is no longer stored): `gpumigrate describe JOB` shows the job's state");
  return to_response(status, record::to_answer(task_view(*task)));
}

control::Task<ImageApi::Answer> ImageApi::task(HttpRequest request) {
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto id = parse_task_id(request.path[2]);
  if (!id) co_return Error(ErrorCode::kNotFound, "There is no task \"" + request.path[2] + "\"");
  co_await deps_.tasks.wait(*id, steady_clock::now() + milliseconds(timeout));
  co_return show(*id, 200);
}

control::Task<ImageApi::Answer> ImageApi::of_job(HttpRequest request) {
  const Job* job = deps_.jobs.find(request.path[2]);
  const bool comes_back = request.path[3] == "restore" || request.path[3] == "resume";
  if (job == nullptr && comes_back) co_return co_await restore(std::move(request), 0);
  if (job == nullptr) co_return deps_.jobs.not_found(request.path[2]);
  const JobId id = job->id;
  const std::string verb = request.path[3];
  if (verb == "protect") co_return co_await protect(std::move(request), id);
  if (verb == "unprotect") co_return unprotect(request, id);
  if (verb == "snapshot" || verb == "suspend") co_return co_await snapshot(std::move(request), id);
  co_return co_await restore(std::move(request), id);
}

control::Task<ImageApi::Answer> ImageApi::protect(HttpRequest request, JobId id) {
  CKPT_CO_TRY(wish, read_protect(request));
  CKPT_CO_TRY(done, co_await deps_.protections.protect(id, wish));
  co_return to_response(200, record::to_answer(protected_view(id, done, wish.dry_run)));
}

ImageApi::Answer ImageApi::unprotect(const HttpRequest& request, JobId id) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.protections.unprotect(id));
  return to_response(200, record::to_answer(api::Unprotected{job_text(id)}));
}

control::Task<ImageApi::Answer> ImageApi::snapshot(HttpRequest request, JobId id) {
  CKPT_CO_TRY(to, read_destination(request));
  if (request.path[3] == "suspend") {
    CKPT_CO_TRY(suspending, co_await deps_.images.begin_suspend(id, to));
    co_return show(suspending, 202);
  }
  CKPT_CO_TRY(before_event, co_await deps_.images.begin_snapshot(id, to));
  co_return show(before_event, 202);
}

control::Task<ImageApi::Answer> ImageApi::restore(HttpRequest request, JobId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  RestoreWish wish;
  wish.verb = request.path[3];
  wish.to = body.text("to").value_or("auto");
  wish.reason = body.text("reason").value_or("");
  std::optional<std::string> image;
  if (wish.verb == "restore") {
    image = body.text("image");
    wish.force = body.boolean("force").value_or(false);
    wish.accept_loss = body.boolean("accept_loss").value_or(false);
  }
  wish.only_plan = body.boolean("dry_run").value_or(false);
  CKPT_CO_TRYV(body.finish());
  if (image) {
    const auto wanted = parse_image_id(*image);
    if (!wanted)
      co_return Error(ErrorCode::kInvalidArgument,
                      "\"" + *image + "\" is not the id of an image: use one like j3.v12@node-a");
    const JobId given = id != 0 ? id : parse_job_id(request.path[2]).value_or(0);
    if (!wire::may_mean(wanted->job, given) && !wire::may_mean(given, wanted->job))
      co_return Error(ErrorCode::kInvalidArgument,
                      "Image " + *image + " does not belong to job " + request.path[2]);
    CKPT_CO_TRY(listed, deps_.catalog.find(*wanted));
    if (listed.damaged) co_return Error(ErrorCode::kRefused, "Image " + *image + " is damaged");
    wish.image = listed.image;
  }
  const bool known = deps_.jobs.find(id) != nullptr;
  if (!known && !wish.image) {
    CKPT_CO_TRY(resting, deps_.finder.of_unknown(request.path[2]));
    wish.image = resting;
  }
  // The program and its user are taken from an image that a node lists. This coordinator has never checked
  // either of them.
  const Role role = role_of(request.peer).value_or(Role::kViewer);
  if (!known && role < Role::kAdmin)
    co_return forbidden(
        text_of_refusal("Starting a job that the coordinator does not know", Role::kAdmin, role));
  if (wish.only_plan) co_return co_await dry_restore(id, std::move(wish));
  if (!known) {
    CKPT_CO_TRY(revival, co_await deps_.requests.begin_revival(std::move(wish)));
    co_return show(revival, 202);
  }
  CKPT_CO_TRY(task, co_await deps_.requests.begin_restore(id, std::move(wish)));
  co_return show(task, 202);
}

control::Task<ImageApi::Answer> ImageApi::dry_restore(JobId id, RestoreWish wish) {
  const std::string verb = wish.verb;
  const bool known = deps_.jobs.find(id) != nullptr;
  const std::string job = job_text(known ? id : wish.image->job);
  const std::string name = known ? deps_.jobs.find(id)->spec.name : name_in(*wish.image);
  RestorePlan plan;
  if (known) {
    CKPT_CO_TRY(planned, co_await deps_.requests.dry_restore(id, std::move(wish)));
    plan = std::move(planned);
  } else {
    CKPT_CO_TRY(planned, co_await deps_.requests.dry_revival(std::move(wish)));
    plan = std::move(planned);
  }
  api::RestorePlan view = restore_plan_view(plan);
  view.verb = verb;
  view.job = job;
  view.job_name = name;
  co_return to_response(200, record::to_answer(view));
}

}  // namespace ckpt::coordinator
