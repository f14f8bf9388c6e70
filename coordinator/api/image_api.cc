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

// The request body of the calls `restore` and `resume`.
struct RestoreBody {
  JobRestoreWish wish;
  std::optional<std::string> image;
  bool only_plan = false;
};

Result<RestoreBody> read_restore(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  RestoreBody read;
  read.wish.verb = request.path[3];
  read.wish.to = body.text("to").value_or("auto");
  read.wish.reason = body.text("reason").value_or("");
  if (read.wish.verb == "restore") {
    read.image = body.text("image");
    read.wish.force = body.boolean("force").value_or(false);
    read.wish.accept_loss = body.boolean("accept_loss").value_or(false);
  }
  read.only_plan = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  return read;
}

// Builds the RestoreWish for a job that the coordinator does not know, from the request's body and the image.
RestoreWish revival_wish(const RestoreBody& body, const Image& image) {
  RestoreWish wish;
  wish.verb = body.wish.verb;
  wish.reason = body.wish.reason;
  wish.to = body.wish.to;
  wish.image = image;
  wish.force = body.wish.force;
  wish.accept_loss = body.wish.accept_loss;
  wish.only_plan = body.only_plan;
  return wish;
}

HttpResponse answer_with_plan(const JobRestorePlan& plan, const std::string& verb, JobId job,
                              const std::string& name) {
  api::RestorePlan view = restore_plan_view(plan);
  view.verb = verb;
  view.job = job_text(job);
  view.job_name = name;
  return to_response(200, record::to_answer(view));
}

}  // namespace

bool ImageApi::handles(const HttpRequest& request) const {
  const std::string& what = request.path[1];
  if (what == "images" || what == "tasks") return true;
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
  const std::string verb = request.path[3];
  const bool comes_back = verb == "restore" || verb == "resume";
  auto found = find_named(deps_.jobs, request.path[2]);
  if (!found && comes_back) co_return co_await revive(std::move(request));
  CKPT_CO_TRY(named, std::move(found));
  if (comes_back) co_return co_await restore(std::move(request), std::move(named));
  CKPT_CO_TRY(whole, whole_of(named));
  if (verb == "protect") co_return co_await protect(std::move(request), whole);
  if (verb == "unprotect") co_return unprotect(request, whole);
  co_return co_await snapshot(std::move(request), whole);
}

control::Task<ImageApi::Answer> ImageApi::protect(HttpRequest request, JobId whole) {
  CKPT_CO_TRY(wish, read_protect(request));
  CKPT_CO_TRY(done, co_await deps_.protections.protect(whole, wish));
  co_return to_response(200, record::to_answer(protected_view(whole, done, wish.dry_run)));
}

ImageApi::Answer ImageApi::unprotect(const HttpRequest& request, JobId whole) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.protections.unprotect(whole));
  return to_response(200, record::to_answer(api::Unprotected{job_text(whole)}));
}

control::Task<ImageApi::Answer> ImageApi::snapshot(HttpRequest request, JobId whole) {
  CKPT_CO_TRY(to, read_destination(request));
  if (request.path[3] == "suspend") {
    CKPT_CO_TRY(suspending, co_await deps_.job_images.begin_suspend(whole, to));
    co_return show(suspending, 202);
  }
  CKPT_CO_TRY(before_event, co_await deps_.job_images.begin_snapshot(whole, to));
  co_return show(before_event, 202);
}

Result<Image> ImageApi::find_image(const std::string& id) const {
  const auto wanted = parse_image_id(id);
  if (!wanted)
    return Error(ErrorCode::kInvalidArgument,
                 "\"" + id + "\" is not the id of an image: use one like j3.v12@node-a");
  CKPT_TRY(listed, deps_.catalog.find(*wanted));
  if (listed.damaged) return Error(ErrorCode::kRefused, "Image " + id + " is damaged");
  return std::move(listed.image);
}

control::Task<ImageApi::Answer> ImageApi::restore(HttpRequest request, NamedJob named) {
  CKPT_CO_TRY(body, read_restore(request));
  if (body.image) {
    // An image of one rank identifies the images of all ranks.
    CKPT_CO_TRY(image, find_image(*body.image));
    body.wish.image = std::move(image);
  } else {
    CKPT_CO_TRYV(whole_of(named));
  }
  const JobId whole = named.whole;
  if (!body.only_plan) {
    CKPT_CO_TRY(task, co_await deps_.job_images.begin_restore(whole, std::move(body.wish)));
    co_return show(task, 202);
  }
  const std::string verb = body.wish.verb;
  const std::string name = named.job.ranks.front()->whole_name();
  CKPT_CO_TRY(plan, co_await deps_.job_images.dry_restore(whole, std::move(body.wish)));
  co_return answer_with_plan(plan, verb, whole, name);
}

control::Task<ImageApi::Answer> ImageApi::revive(HttpRequest request) {
  CKPT_CO_TRY(body, read_restore(request));
  Image image;
  if (body.image) {
    CKPT_CO_TRY(named, find_image(*body.image));
    const JobId given = parse_job_id(request.path[2]).value_or(0);
    if (!wire::may_mean(named.job, given) && !wire::may_mean(given, named.job))
      co_return Error(ErrorCode::kInvalidArgument,
                      "Image " + *body.image + " does not belong to job " + request.path[2]);
    image = std::move(named);
  } else {
    CKPT_CO_TRY(resting, deps_.finder.of_unknown(request.path[2]));
    image = std::move(resting);
  }
  // The program and its user are taken from an image that a node lists. This coordinator has never checked
  // either of them. Therefore only an admin may revive the job.
  const Role role = role_of(request.peer).value_or(Role::kViewer);
  if (role < Role::kAdmin)
    co_return forbidden(
        text_of_refusal("Starting a job that the coordinator does not know", Role::kAdmin, role));
  RestoreWish wish = revival_wish(body, image);
  if (!body.only_plan) {
    CKPT_CO_TRY(revival, co_await deps_.requests.begin_revival(std::move(wish)));
    co_return show(revival, 202);
  }
  CKPT_CO_TRY(plan, co_await deps_.requests.dry_revival(std::move(wish)));
  co_return answer_with_plan(job_restore_plan(plan), body.wish.verb, image.job, name_in(image));
}

}  // namespace ckpt::coordinator
