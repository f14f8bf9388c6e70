// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/job_section.h"

#include <fmt/ranges.h>

#include "coordinator/api/gang_section.h"
#include "coordinator/api/job_requests.h"
#include "coordinator/api/job_views.h"
#include "coordinator/api/migration_views.h"
#include "coordinator/api/plan_views.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxGraceMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxLogOffset = std::int64_t{1} << 60;
constexpr std::int64_t kDefaultStopGraceMs = 10'000;

}  // namespace

bool JobSection::takes(const HttpRequest& request) const {
  const std::string& subject = request.path[1];
  return subject == "jobs" || (subject == "adopt" && request.path.size() == 2 && is_post(request));
}

control::Task<Result<HttpResponse>> JobSection::handle(HttpRequest request) {
  if (request.path[1] == "adopt") co_return co_await adopt(std::move(request));
  if (request.path.size() == 2 && is_post(request)) co_return co_await submit(std::move(request));
  if (request.path.size() == 2 && is_get(request)) co_return list(request);
  if (request.path.size() == 2) co_return no_such_call(request);
  Job* job = deps_.jobs.find(request.path[2]);
  if (job == nullptr) co_return deps_.jobs.not_found(request.path[2]);
  if (request.path.size() == 3 && request.method == "DELETE") {
    const JobId id = job->id;
    CKPT_CO_TRYV(deps_.service.forget(*job));
    co_return to_response(200, {{"removed", job_text(id)}});
  }
  if (request.path.size() == 3 && is_get(request))
    co_return to_response(
        200, record::to_answer(job_detail_view(*job, deps_.states, deps_.nodes, deps_.migrations)));
  if (request.path.size() == 4) {
    const std::string verb = request.path[3];
    if (verb == "wait" && is_get(request)) co_return co_await wait(std::move(request), job->id);
    if (verb == "obstacles" && is_get(request)) co_return co_await obstacles(job->id);
    if (verb == "logs" && is_get(request)) co_return co_await logs(std::move(request), job->id);
    if (verb == "stop" && is_post(request)) co_return stop(request, *job);
    if (verb == "migrate" && is_post(request)) co_return co_await migrate(std::move(request), job->id);
  }
  co_return no_such_call(request);
}

JobSection::Answer JobSection::list(const HttpRequest& request) {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_job_id(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument, "Parameter \"after\" must be the id of a job");
  const auto& all = deps_.jobs.all();
  json out = json::array();
  // The ranks of a gang are listed together, at the position of the gang's first rank.
  JobId shown = after.value_or(0);
  auto at = all.upper_bound(shown);
  for (; at != all.end() && (page.limit == 0 || out.size() < page.limit); ++at) {
    const JobId gang = at->second.spec.gang.id;
    if (gang != 0 && gang == shown) continue;
    if (gang != 0) shown = gang;
    out.push_back(gang != 0 ? record::to_answer(gang_view(*find_whole(deps_.jobs, gang), deps_.states))
                            : record::to_answer(job_view(at->second, deps_.states)));
  }
  while (at != all.end() && at->second.spec.gang.id != 0 && at->second.spec.gang.id == shown) ++at;
  return page_response(page, "jobs", std::move(out), at != all.end());
}

control::Task<JobSection::Answer> JobSection::submit(HttpRequest request) {
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_submit(request, dry_run));
  const bool is_gang = wanted.gang.ranks > 1;
  if (dry_run && is_gang) {
    CKPT_CO_TRY(plan, deps_.planner.plan_gang(wanted));
    co_return to_response(200, record::to_answer(run_plan_view(wanted, plan)));
  }
  if (dry_run) {
    CKPT_CO_TRY(plan, deps_.service.plan(wanted));
    co_return to_response(200, record::to_answer(run_plan_view(wanted, plan)));
  }
  if (is_gang) {
    CKPT_CO_TRY(started, co_await deps_.service.submit_gang(std::move(wanted)));
    const auto gang = find_whole(deps_.jobs, started.job->spec.gang.id);
    co_return to_response(201, record::to_answer(api::StartedJob{gang_view(*gang, deps_.states), {}}));
  }
  CKPT_CO_TRY(submitted, co_await deps_.service.submit(std::move(wanted)));
  co_return to_response(201, record::to_answer(api::StartedJob{job_view(*submitted.job, deps_.states),
                                                               displaced_view(submitted.displaced)}));
}

control::Task<JobSection::Answer> JobSection::adopt(HttpRequest request) {
  CKPT_CO_TRY(wanted, read_adopt(request));
  CKPT_CO_TRY(job, co_await deps_.service.adopt(std::move(wanted)));
  co_return to_response(201, record::to_answer(job_view(*job, deps_.states)));
}

control::Task<JobSection::Answer> JobSection::wait(HttpRequest request, JobId id) {
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  co_await deps_.service.wait_for_end(id, steady_clock::now() + milliseconds(timeout));
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  co_return to_response(200, record::to_answer(job_view(*job, deps_.states)));
}

control::Task<JobSection::Answer> JobSection::logs(HttpRequest request, JobId id) {
  CKPT_CO_TRY(offset, query_number(request, "offset", 0, kMaxLogOffset));
  CKPT_CO_TRY(limit, query_number(request, "limit", wire::kMaxLogBytes, kMaxLogOffset));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  CKPT_CO_TRY(since, query_number(request, "since_ms", 0, kMaxLogOffset));
  CKPT_CO_TRY(times, query_number(request, "timestamps", 0, 1));
  const Job* job = deps_.jobs.find(id);
  const auto own = static_cast<std::int64_t>(job->rank_number());
  CKPT_CO_TRY(rank, query_number(request, "rank", own, kMaxLogOffset));
  if (rank != own)
    co_return Error(ErrorCode::kNotFound, "Job " + job->spec.name + " has no rank " + std::to_string(rank));
  LogView view;
  view.limit = static_cast<std::uint32_t>(std::min<std::int64_t>(limit, wire::kMaxLogBytes));
  view.with_times = times != 0;
  view.since_ms = since;
  CKPT_CO_TRY(chunk, co_await deps_.logs.read(id, static_cast<std::uint64_t>(offset), view,
                                              steady_clock::now() + milliseconds(follow)));
  HttpResponse response(200, std::move(chunk.bytes));
  response.content_type = "application/octet-stream";
  response.headers.emplace_back("X-Next-Offset", std::to_string(chunk.next_offset));
  response.headers.emplace_back("X-Ended", chunk.ended ? "true" : "false");
  response.headers.emplace_back("X-Length", std::to_string(chunk.length));
  response.headers.emplace_back("X-Incarnation", std::to_string(chunk.from.incarnation));
  if (!chunk.missing.empty())
    response.headers.emplace_back("X-Missing", fmt::format("{}", fmt::join(chunk.missing, ", ")));
  if (chunk.skipped > 0) response.headers.emplace_back("X-Skipped", std::to_string(chunk.skipped));
  if (!chunk.from.image.empty()) {
    response.headers.emplace_back("X-Restored-From", chunk.from.image);
    response.headers.emplace_back("X-Lost-Ms", std::to_string(chunk.from.lost_ms));
  }
  co_return std::move(response);
}

JobSection::Answer JobSection::stop(const HttpRequest& request, Job& job) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::int64_t grace = body.integer("grace_ms", 0, kMaxGraceMs).value_or(kDefaultStopGraceMs);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.service.stop(job, grace));
  return to_response(202, record::to_answer(job_view(job, deps_.states)));
}

control::Task<JobSection::Answer> JobSection::obstacles(JobId id) {
  CKPT_CO_TRY(found, co_await deps_.moves.obstacles(id));
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  co_return to_response(200, record::to_answer(obstacles_view(*job, found)));
}

control::Task<JobSection::Answer> JobSection::migrate(HttpRequest request, JobId id) {
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_migrate(request, dry_run));
  if (!wanted.ranks.empty())
    co_return Error(ErrorCode::kInvalidArgument,
                    "The job has one rank: --rank is only for jobs of several ranks");
  if (wanted.communicators)
    co_return Error(ErrorCode::kInvalidArgument,
                    "The job has one rank: --communicators is only for jobs of several ranks");
  if (dry_run) {
    CKPT_CO_TRY(plan, co_await deps_.moves.dry_run(id, wanted));
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    co_return to_response(200, record::to_answer(move_plan_view(*job, plan, wanted.options, deps_.nodes)));
  }
  CKPT_CO_TRY(migration, co_await deps_.moves.migrate(id, std::move(wanted)));
  deps_.service.confirm_by_move(id);
  co_return to_response(202, migration_json(*migration));
}

}  // namespace ckpt::coordinator
