// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/gang_section.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "coordinator/api/image_views.h"
#include "coordinator/api/job_requests.h"
#include "coordinator/api/job_views.h"
#include "coordinator/api/migration_views.h"
#include "coordinator/api/plan_views.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxStopGraceMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kStopGraceMs = 10'000;
constexpr std::int64_t kMaxRank = 1 << 20;

// Returns the nodes in `to`, a comma-separated list. Returns no nodes for "auto".
std::vector<std::string> nodes_in(const std::string& to) {
  std::vector<std::string> nodes;
  if (to.empty() || to == "auto") return nodes;
  for (std::size_t from = 0; from <= to.size();) {
    const std::size_t comma = std::min(to.find(',', from), to.size());
    nodes.push_back(to.substr(from, comma - from));
    from = comma + 1;
  }
  return nodes;
}

}  // namespace

bool GangSection::takes(const HttpRequest& request) const {
  if (request.path[1] != "jobs" || request.path.size() <= 2) return false;
  const Job* job = deps_.jobs.find(request.path[2]);
  // An image of one rank identifies the whole set.
  if (job != nullptr)
    return job->spec.gang.id != 0 && request.path.size() == 4 &&
           (request.path[3] == "restore" || request.path[3] == "migrate");
  return deps_.jobs.find_whole(request.path[2]).has_value();
}

control::Task<Result<HttpResponse>> GangSection::handle(HttpRequest request) {
  const Job* rank = deps_.jobs.find(request.path[2]);
  auto gang =
      rank == nullptr ? find_whole(deps_.jobs, request.path[2]) : find_whole(deps_.jobs, rank->spec.gang.id);
  if (!gang) co_return deps_.jobs.not_found(request.path[2]);
  if (request.path.size() == 3 && request.method == "DELETE") co_return remove(*gang);
  if (request.path.size() == 3 && is_get(request))
    co_return to_response(
        200, record::to_answer(gang_detail_view(*gang, deps_.states, deps_.moves.open_of(*gang))));
  const std::string verb = request.path.size() == 4 ? request.path[3] : std::string();
  if (verb == "wait" && is_get(request)) co_return co_await wait(std::move(request), gang->id);
  if (verb == "logs" && is_get(request)) co_return co_await logs(std::move(request), *std::move(gang));
  if (verb == "stop" && is_post(request)) co_return stop(request, *gang);
  if (verb == "protect" && is_post(request)) co_return co_await protect(std::move(request), gang->id);
  if (verb == "unprotect" && is_post(request)) {
    CKPT_CO_TRYV(deps_.protections.unprotect(gang->id));
    co_return to_response(200, record::to_answer(api::Unprotected{job_text(gang->id)}));
  }
  if (verb == "migrate" && is_post(request)) {
    std::optional<std::uint32_t> number;
    if (rank != nullptr) number = rank->rank_number();
    co_return co_await migrate(std::move(request), gang->id, number);
  }
  if ((verb == "snapshot" || verb == "suspend") && is_post(request))
    co_return co_await store(std::move(request), gang->id);
  if ((verb == "resume" || verb == "restore") && is_post(request))
    co_return co_await restore(std::move(request), gang->id);
  co_return deps_.jobs.not_found(request.path[2]);
}

control::Task<GangSection::Answer> GangSection::wait(HttpRequest request, JobId id) {
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    const auto gang = find_whole(deps_.jobs, id);
    if (!gang) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    if (is_ended(state_of(*gang)) || steady_clock::now() >= deadline)
      co_return to_response(200, record::to_answer(gang_view(*gang, deps_.states)));
    co_await deps_.jobs.changed().wait_until(deadline);
  }
}

control::Task<GangSection::Answer> GangSection::logs(HttpRequest request, WholeJob gang) {
  CKPT_CO_TRY(wanted, query_number(request, "rank", 0, kMaxRank));
  const auto rank = std::find_if(gang.ranks.begin(), gang.ranks.end(), [wanted](const Job* known) {
    return known->rank_number() == static_cast<std::uint32_t>(wanted);
  });
  if (rank == gang.ranks.end())
    co_return Error(ErrorCode::kNotFound, fmt::format("Job {} has no rank {}", gang.name, wanted));
  request.path[2] = job_text((*rank)->id);
  co_return co_await deps_.job_section.handle(std::move(request));
}

GangSection::Answer GangSection::show_task(TaskId id) {
  const ImageTask* task = deps_.tasks.find(id);
  if (task == nullptr) return Error(ErrorCode::kInternal, "The task no longer exists");
  return to_response(202, record::to_answer(task_view(*task)));
}

control::Task<GangSection::Answer> GangSection::store(HttpRequest request, JobId id) {
  CKPT_CO_TRY(to, read_destination(request));
  if (request.path[3] == "suspend") {
    CKPT_CO_TRY(suspending, co_await deps_.images.begin_suspend(id, to));
    co_return show_task(suspending);
  }
  CKPT_CO_TRY(before_event, co_await deps_.images.begin_snapshot(id, to));
  co_return show_task(before_event);
}

control::Task<GangSection::Answer> GangSection::restore(HttpRequest request, JobId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  GangRestoreWish wish;
  wish.verb = request.path[3];
  wish.reason = body.text("reason").value_or("");
  wish.nodes = nodes_in(body.text("to").value_or("auto"));
  std::optional<std::string> image;
  if (wish.verb == "restore") {
    image = body.text("image");
    wish.accept_loss = body.boolean("accept_loss").value_or(false);
    if (body.boolean("force").value_or(false))
      co_return Error(ErrorCode::kNotSupported, "--force is not supported for a job of several ranks");
  }
  const bool only_plan = body.boolean("dry_run").value_or(false);
  CKPT_CO_TRYV(body.finish());
  if (!image && deps_.jobs.find(request.path[2]) != nullptr)
    co_return Error(ErrorCode::kNotSupported,
                    request.path[2] +
                        " is a rank: all ranks of its job start from their images together, so name the job");
  if (image) {
    const auto named = parse_image_id(*image);
    if (!named)
      co_return Error(ErrorCode::kInvalidArgument,
                      "\"" + *image + "\" is not the id of an image: use one like j3.v12@node-a");
    CKPT_CO_TRY(listed, deps_.catalog.find(*named));
    wish.image = listed.image;
  }
  if (!only_plan) {
    CKPT_CO_TRY(task, co_await deps_.restores.begin(id, std::move(wish)));
    co_return show_task(task);
  }
  const std::string verb = wish.verb;
  CKPT_CO_TRY(plan, co_await deps_.restores.plan(id, std::move(wish)));
  api::RestorePlan view = restore_plan_view(plan);
  view.verb = verb;
  view.job = job_text(id);
  if (const auto gang = find_whole(deps_.jobs, id)) view.job_name = gang->name;
  co_return to_response(200, record::to_answer(view));
}

control::Task<GangSection::Answer> GangSection::protect(HttpRequest request, JobId id) {
  CKPT_CO_TRY(wish, read_protect(request));
  CKPT_CO_TRY(done, co_await deps_.protections.protect(id, wish));
  co_return to_response(200, record::to_answer(protected_view(id, done, wish.dry_run)));
}

control::Task<GangSection::Answer> GangSection::migrate(HttpRequest request, JobId id,
                                                        std::optional<std::uint32_t> rank) {
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_migrate(request, dry_run));
  if (rank && !wanted.ranks.empty())
    co_return Error(ErrorCode::kInvalidArgument,
                    "The job is one rank already: leave --rank out, or name the whole job");
  if (rank) wanted.ranks.push_back(*rank);
  if (!dry_run) {
    CKPT_CO_TRY(begun, co_await deps_.moves.begin(id, std::move(wanted)));
    if (const auto moved = find_whole(deps_.jobs, id))
      for (const Job* known : moved->ranks) deps_.service.confirm_by_move(known->id);
    co_return to_response(202, migration_json(*begun));
  }
  wire::MigrateOptions options = wanted.options;
  CKPT_CO_TRY(plan, co_await deps_.moves.dry_run(id, std::move(wanted)));
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  options.communicators = plan.communicators;
  co_return to_response(200, record::to_answer(move_plan_view(*gang, plan, options)));
}

GangSection::Answer GangSection::stop(const HttpRequest& request, const WholeJob& gang) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::int64_t grace = body.integer("grace_ms", 0, kMaxStopGraceMs).value_or(kStopGraceMs);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.service.stop_all(gang.ranks, grace));
  return to_response(202, record::to_answer(gang_view(gang, deps_.states)));
}

GangSection::Answer GangSection::remove(const WholeJob& gang) {
  if (!is_ended(state_of(gang)))
    return Error(
        ErrorCode::kRefused,
        fmt::format("job {} has running ranks: only ended jobs can be removed; `gpumigrate stop {}` ends it",
                    gang.name, gang.name));
  for (const Job* rank : gang.ranks) {
    CKPT_TRYV(deps_.service.forget(*rank));
  }
  return to_response(200, {{"removed", job_text(gang.id)}});
}

}  // namespace ckpt::coordinator
