// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/job_section.h"

#include <fmt/ranges.h>

#include <algorithm>

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
constexpr std::int64_t kMaxRankNumber = std::int64_t{1} << 20;
constexpr std::int64_t kDefaultStopGraceMs = 10'000;

// Returns the rank with the number in the query parameter `rank`, by default the first rank.
Result<Job*> rank_in_query(const HttpRequest& request, const WholeJob& job) {
  CKPT_TRY(wanted, query_number(request, "rank", job.ranks.front()->rank_number(), kMaxRankNumber));
  return find_rank(job, static_cast<std::uint32_t>(wanted));
}

}  // namespace

bool JobSection::handles(const HttpRequest& request) const {
  const std::string& subject = request.path[1];
  return subject == "jobs" || (subject == "adopt" && request.path.size() == 2 && is_post(request));
}

control::Task<Result<HttpResponse>> JobSection::handle(HttpRequest request) {
  if (request.path[1] == "adopt") co_return co_await adopt(std::move(request));
  if (request.path.size() == 2 && is_post(request)) co_return co_await submit(std::move(request));
  if (request.path.size() == 2 && is_get(request)) co_return list(request);
  if (request.path.size() == 2) co_return no_such_call(request);
  CKPT_CO_TRY(named, find_named(deps_.jobs, request.path[2]));
  co_return co_await handle_named(std::move(request), std::move(named));
}

control::Task<JobSection::Answer> JobSection::handle_named(HttpRequest request, NamedJob named) {
  const std::string verb = request.path.size() == 4 ? request.path[3] : std::string();
  if (request.path.size() == 3 && request.method == "DELETE") co_return remove(named.job);
  if (request.path.size() == 3 && is_get(request)) co_return show(named.job);
  if (verb == "wait" && is_get(request)) co_return co_await wait(std::move(request), named.job.id);
  if (verb == "obstacles" && is_get(request))
    co_return co_await obstacles(std::move(request), std::move(named.job));
  if (verb == "logs" && is_get(request)) co_return co_await logs(std::move(request), std::move(named.job));
  if (verb == "stop" && is_post(request)) co_return stop(request, named.job);
  if (verb == "migrate" && is_post(request)) co_return co_await migrate(std::move(request), std::move(named));
  co_return no_such_call(request);
}

JobSection::Answer JobSection::answer_with(unsigned status, const WholeJob& job) const {
  return to_response(status, record::to_answer(job_view(job, deps_.states, deps_.moves)));
}

JobSection::Answer JobSection::list(const HttpRequest& request) {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_job_id(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument, "Parameter \"after\" must be the id of a job");
  const auto& all = deps_.jobs.all();
  json out = json::array();
  // A job is listed at the position of its first rank. The records of its other ranks follow that record.
  JobId shown = after.value_or(0);
  auto at = all.upper_bound(shown);
  for (; at != all.end() && (page.limit == 0 || out.size() < page.limit); ++at) {
    const JobId whole = at->second.whole();
    if (whole == shown) continue;
    shown = whole;
    out.push_back(record::to_answer(job_view(*find_whole(deps_.jobs, whole), deps_.states, deps_.moves)));
  }
  while (at != all.end() && at->second.whole() == shown) ++at;
  return page_response(page, "jobs", std::move(out), at != all.end());
}

control::Task<JobSection::Answer> JobSection::submit(HttpRequest request) {
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_submit(request, dry_run));
  if (dry_run) {
    CKPT_CO_TRY(plan, deps_.service.plan(wanted));
    co_return to_response(200, record::to_answer(run_plan_view(wanted, plan)));
  }
  CKPT_CO_TRY(submitted, co_await deps_.service.submit(std::move(wanted)));
  api::StartedJob view;
  view.job = job_view(submitted.job, deps_.states, deps_.moves);
  view.displaced = displaced_view(submitted.displaced);
  co_return to_response(201, record::to_answer(view));
}

control::Task<JobSection::Answer> JobSection::adopt(HttpRequest request) {
  CKPT_CO_TRY(wanted, read_adopt(request));
  CKPT_CO_TRY(job, co_await deps_.service.adopt(std::move(wanted)));
  co_return answer_with(201, job);
}

control::Task<JobSection::Answer> JobSection::wait(HttpRequest request, JobId id) {
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    CKPT_CO_TRY(job, find_named(deps_.jobs, id));
    if (is_ended(state_of(job)) || steady_clock::now() >= deadline) co_return answer_with(200, job);
    co_await deps_.jobs.changed().wait_until(deadline);
  }
}

JobSection::Answer JobSection::show(const WholeJob& job) {
  return to_response(
      200, record::to_answer(job_detail_view(job, deps_.states, deps_.moves, deps_.nodes, deps_.migrations)));
}

JobSection::Answer JobSection::remove(const WholeJob& job) {
  CKPT_TRYV(deps_.service.forget(job.ranks));
  return to_response(200, {{"removed", job_text(job.id)}});
}

control::Task<JobSection::Answer> JobSection::logs(HttpRequest request, WholeJob job) {
  CKPT_CO_TRY(offset, query_number(request, "offset", 0, kMaxLogOffset));
  CKPT_CO_TRY(limit, query_number(request, "limit", wire::kMaxLogBytes, kMaxLogOffset));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  CKPT_CO_TRY(since, query_number(request, "since_ms", 0, kMaxLogOffset));
  CKPT_CO_TRY(times, query_number(request, "timestamps", 0, 1));
  CKPT_CO_TRY(rank, rank_in_query(request, job));
  LogView view;
  view.limit = static_cast<std::uint32_t>(std::min<std::int64_t>(limit, wire::kMaxLogBytes));
  view.with_times = times != 0;
  view.since_ms = since;
  CKPT_CO_TRY(chunk, co_await deps_.logs.read(rank->id, static_cast<std::uint64_t>(offset), view,
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

JobSection::Answer JobSection::stop(const HttpRequest& request, const WholeJob& job) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::int64_t grace = body.integer("grace_ms", 0, kMaxGraceMs).value_or(kDefaultStopGraceMs);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.service.stop(job.ranks, grace));
  return answer_with(202, job);
}

control::Task<JobSection::Answer> JobSection::obstacles(HttpRequest request, WholeJob job) {
  CKPT_CO_TRY(wanted, rank_in_query(request, job));
  const JobId id = wanted->id;
  CKPT_CO_TRY(found, co_await deps_.moves.obstacles(id));
  const Job* rank = deps_.jobs.find(id);
  if (rank == nullptr) co_return job_was_removed(id);
  co_return to_response(200, record::to_answer(obstacles_view(*rank, found)));
}

control::Task<JobSection::Answer> JobSection::migrate(HttpRequest request, NamedJob named) {
  const JobId whole = named.whole;
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_migrate(request, dry_run));
  if (named.rank && !wanted.ranks.empty())
    co_return Error(ErrorCode::kInvalidArgument,
                    "The job is one rank already: omit --rank, or name the whole job");
  if (named.rank) wanted.ranks.push_back(*named.rank);
  if (!dry_run) {
    CKPT_CO_TRY(migration, co_await deps_.moves.migrate(whole, std::move(wanted)));
    deps_.service.confirm_by_move(whole);
    co_return to_response(202, migration_json(*migration));
  }
  const wire::MigrateOptions options = wanted.options;
  CKPT_CO_TRY(plan, co_await deps_.moves.dry_run(whole, std::move(wanted)));
  const auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  const auto pause = deps_.moves.pause_of(*job, plan);
  co_return to_response(200, record::to_answer(move_plan_view(*job, plan, options, pause)));
}

}  // namespace ckpt::coordinator
