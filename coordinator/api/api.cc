// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/api.h"

#include <array>
#include <cmath>

#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxTimeMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 60;
constexpr std::int64_t kDefaultStopGraceMs = 10'000;
constexpr std::int64_t kDefaultTimeoutMs = 600'000;
constexpr std::int64_t kMaxShadowBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMaxEvents = 10'000;
constexpr std::int64_t kMaxPriority = 1'000;

// How chunks are encoded and how much of the GPU the copying may take.
Result<void> read_copying(BodyReader& body, wire::MigrateOptions& options) {
  constexpr std::array kModes = {wire::CodecMode::kAuto, wire::CodecMode::kRaw, wire::CodecMode::kPlanes,
                                 wire::CodecMode::kDifference};
  std::vector<std::string> words;
  for (const wire::CodecMode mode : kModes) words.emplace_back(codec_text(mode));
  options.codec = kModes[body.choice("codec", words).value_or(0)];
  options.shadow_memory_bytes =
      static_cast<std::uint64_t>(body.integer("shadow_memory_bytes", 0, kMaxShadowBytes).value_or(0));
  const double slowdown = body.number("slowdown_percent", 0, 100).value_or(0);
  options.slowdown_permille = static_cast<std::uint32_t>(std::lround(slowdown * 10));
  if (slowdown > 0 && options.slowdown_permille == 0)
    return Error(ErrorCode::kInvalidArgument,
                 "Field slowdown_percent must be at least 0.1, or 0 for no limit");
  if (options.codec == wire::CodecMode::kDifference && options.shadow_memory_bytes == 0)
    return Error(ErrorCode::kInvalidArgument, "Codec difference needs the field shadow_memory_bytes");
  return ok();
}

Result<MigrateRequest> read_migrate(BodyReader& body, bool& dry_run) {
  MigrateRequest migrate;
  migrate.to = body.text("to").value_or("auto");
  migrate.options.mode = body.choice("mode", {"live", "stop-copy"}).value_or(0) == 0
                             ? wire::MigrateMode::kLive
                             : wire::MigrateMode::kStopCopy;
  migrate.options.if_not_converged = body.choice("if_not_converged", {"switch", "abort"}).value_or(0) == 0
                                         ? wire::NotConverged::kSwitch
                                         : wire::NotConverged::kAbort;
  const auto downtime_ms = body.number("max_downtime_ms", 0, kMaxTimeMs);
  migrate.options.max_downtime_ns =
      downtime_ms ? static_cast<std::int64_t>(*downtime_ms * kNanosPerMs) : kDefaultMaxDowntimeNs;
  migrate.options.bandwidth_bytes_per_second =
      static_cast<std::uint64_t>(body.integer("bandwidth", 0, kMaxBytes).value_or(0));
  migrate.options.max_rounds = static_cast<std::uint32_t>(body.integer("max_rounds", 0, 100'000).value_or(0));
  const auto copying = read_copying(body, migrate.options);
  migrate.timeout_ms = body.integer("timeout_ms", 1, kMaxTimeMs).value_or(kDefaultTimeoutMs);
  migrate.why = body.text("reason").value_or("");
  dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(copying);
  return migrate;
}

Result<SubmitRequest> read_submit(const HttpRequest& request, bool& dry_run) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  SubmitRequest submit;
  submit.spec.argv = body.texts("argv").value_or(std::vector<std::string>());
  submit.spec.cwd = body.text("cwd").value_or("");
  submit.spec.name = body.text("name").value_or("");
  submit.spec.env = body.environment("env").value_or(std::vector<std::string>());
  submit.node = body.text("node");
  if (const auto gpu = body.integer("gpu", 0, 1024)) submit.gpu = static_cast<std::uint32_t>(*gpu);
  submit.gpus = static_cast<std::uint32_t>(body.integer("gpus", 1, 1024).value_or(1));
  submit.spec.gpu_memory_bytes =
      static_cast<std::uint64_t>(body.integer("gpu_memory_bytes", 0, kMaxBytes).value_or(0));
  submit.spec.priority =
      static_cast<std::int32_t>(body.integer("priority", -kMaxPriority, kMaxPriority).value_or(0));
  submit.preempt = body.boolean("preempt").value_or(false);
  dry_run = body.boolean("dry_run").value_or(false);
  const std::string way = body.text("way").value_or("cooperative");
  CKPT_TRYV(body.finish());
  const auto usage = [](const std::string& why) { return Error(ErrorCode::kInvalidArgument, why); };
  if (way != "cooperative" && way != "transparent")
    return usage("Field way is neither cooperative nor transparent");
  submit.spec.way = way == "transparent" ? MigrationMode::kTransparent : MigrationMode::kCooperative;
  if (submit.spec.argv.empty() || submit.spec.argv.front().empty())
    return usage("Field argv must name a command");
  if (!submit.spec.cwd.starts_with('/')) return usage("Field cwd must be an absolute path");
  if (!submit.spec.name.empty() && !valid_job_name(submit.spec.name))
    return usage("\"" + submit.spec.name +
                 "\" is no name for a job: letters, digits, '.', '_' and '-', at most 63, "
                 "beginning with a letter or digit, and not of the form of an id");
  if (submit.gpu && !submit.node) return usage("Field gpu needs the field node");
  return submit;
}

Result<AdoptRequest> read_adopt(const HttpRequest& request) {
  constexpr std::int64_t kMaxPid = std::int64_t{1} << 30;
  CKPT_TRY(body, BodyReader::parse(request.body));
  AdoptRequest adopt;
  const auto pid = body.integer("pid", 2, kMaxPid);
  adopt.name = body.text("name").value_or("");
  adopt.node = body.text("node");
  adopt.machine = body.text("machine").value_or("");
  adopt.start_ticks = static_cast<std::uint64_t>(body.integer("start_ticks", 0, INT64_MAX).value_or(0));
  CKPT_TRYV(body.finish());
  if (!pid) return Error(ErrorCode::kInvalidArgument, "Field pid must be the id of a process");
  adopt.pid = static_cast<std::int32_t>(*pid);
  if (!adopt.name.empty() && !valid_job_name(adopt.name))
    return Error(ErrorCode::kInvalidArgument, "\"" + adopt.name + "\" is no name for a job");
  return adopt;
}

}  // namespace

HttpResponse Api::refuse(unsigned status, const std::string& why) {
  if (status == 503) return error_response(status, "unavailable", why, 5);
  return status >= 500 ? error_response(status, "internal", why, 6)
                       : error_response(status, "usage", why, 64);
}

bool Api::waits(const HttpRequest& request) {
  if (!is_get(request) || request.path.empty()) return false;
  const auto asks = [&](const char* field) {
    const auto at = request.query.find(field);
    return at != request.query.end() && at->second != "0";
  };
  const std::string& verb = request.path.back();
  return verb == "watch" || verb == "wait" || asks("follow_ms") || asks("timeout_ms");
}

control::Task<HttpResponse> Api::handle(HttpRequest request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (!given.starts_with(kBearer) || !control::same_token(given.substr(kBearer.size()), parts_.token))
    co_return error_response(401, "unauthorized",
                             "A token is needed: see token_file in the coordinator's api.json", 64);
  const bool known = request.path.size() >= 2 && request.path.size() <= 4 && request.path[0] == "v1";
  if (!known) co_return error_response(404, "usage", no_such_call(request).to_string(), 64);
  auto answer = co_await route(std::move(request));
  if (!answer) co_return error_response(answer.assume_error());
  co_return std::move(answer).assume_value();
}

control::Task<Api::Answer> Api::route(HttpRequest request) {
  for (ApiSection* section : parts_.sections) {
    if (section->takes(request)) co_return co_await section->handle(std::move(request));
  }
  const std::string& what = request.path[1];
  if (what == "jobs") co_return co_await route_jobs(std::move(request));
  if (what == "migrations") co_return co_await route_migrations(std::move(request));
  if (what == "adopt" && request.path.size() == 2 && is_post(request))
    co_return co_await adopt(std::move(request));
  if (what == "events" && request.path.size() == 2 && is_get(request))
    co_return co_await events(std::move(request));
  co_return list(request);
}

Api::Answer Api::list(const HttpRequest& request) {
  const std::string& what = request.path[1];
  if (request.path.size() != 2 || !is_get(request)) return no_such_call(request);
  if (what == "status") return to_response(200, status());
  json out = json::array();
  if (what == "nodes") {
    for (const auto& [name, node] : parts_.nodes.all())
      out.push_back(node_json(node, parts_.jobs, parts_.cordons, parts_.policy));
    return to_response(200, out);
  }
  if (what == "gpus") {
    for (const auto& [name, node] : parts_.nodes.all()) {
      for (const wire::GpuInfo& gpu : node.gpus)
        out.push_back(gpu_json(node, gpu, parts_.jobs, parts_.cordons));
    }
    return to_response(200, out);
  }
  return no_such_call(request);
}

json Api::status() const {
  unsigned ready = 0;
  for (const auto& [name, node] : parts_.nodes.all()) ready += node.connected() ? 1 : 0;
  unsigned live = 0;
  for (const Job& job : parts_.jobs.live()) live += is_ended(job.state) ? 0 : 1;
  return {{"version", GPUMIGRATE_VERSION},
          {"api", 1},
          {"started", time_text(parts_.started_ms)},
          {"nodes", parts_.nodes.all().size()},
          {"nodes_ready", ready},
          {"jobs_live", live},
          {"migrations_open", parts_.migrations.open().size()},
          {"breaker_open", parts_.policy.breaker().open},
          {"agent_address", parts_.agent_address}};
}

control::Task<Api::Answer> Api::events(HttpRequest request) {
  CKPT_CO_TRY(after, query_number(request, "after", 0, kMaxOffset));  // as lists have it
  CKPT_CO_TRY(since, query_number(request, "since", after, kMaxOffset));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  CKPT_CO_TRY(limit, query_number(request, "limit", 1000, kMaxEvents));
  const auto deadline = steady_clock::now() + milliseconds(follow);
  while (true) {
    CKPT_CO_TRY(found,
                parts_.events.since(static_cast<std::uint64_t>(since), static_cast<std::size_t>(limit)));
    if (found.empty() && steady_clock::now() < deadline) {
      co_await parts_.events.changed().wait_until(deadline);
      continue;
    }
    json list = json::array();
    for (const Event& event : found) list.push_back(event_json(event));
    const std::uint64_t next = found.empty() ? static_cast<std::uint64_t>(since) : found.back().id;
    co_return to_response(200, {{"events", list}, {"next", next}});
  }
}

// ---- jobs ----

control::Task<Api::Answer> Api::route_jobs(HttpRequest request) {
  if (request.path.size() == 2 && is_post(request)) co_return co_await submit(std::move(request));
  if (request.path.size() == 2 && is_get(request)) co_return list_jobs(request);
  if (request.path.size() == 2) co_return no_such_call(request);
  Job* job = parts_.jobs.find(request.path[2]);
  if (job == nullptr) co_return parts_.jobs.not_found(request.path[2]);
  if (request.path.size() == 3 && is_get(request))
    co_return to_response(200, job_detail_json(*job, parts_.states, parts_.nodes, parts_.migrations));
  if (request.path.size() == 4) {
    const std::string verb = request.path[3];
    if (verb == "wait" && is_get(request)) co_return co_await wait(std::move(request), job->id);
    if (verb == "logs" && is_get(request)) co_return co_await logs(std::move(request), job->id);
    if (verb == "stop" && is_post(request)) co_return stop(request, *job);
    if (verb == "migrate" && is_post(request)) co_return co_await migrate(std::move(request), job->id);
  }
  co_return no_such_call(request);
}

Api::Answer Api::list_jobs(const HttpRequest& request) {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_job_id(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument, "after must be the id of a job");
  const auto& all = parts_.jobs.all();
  json out = json::array();
  auto at = all.upper_bound(after.value_or(0));
  for (; at != all.end() && (page.limit == 0 || out.size() < page.limit); ++at)
    out.push_back(job_json(at->second, parts_.states));
  return page_response(page, "jobs", std::move(out), at != all.end());
}

control::Task<Api::Answer> Api::submit(HttpRequest request) {
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_submit(request, dry_run));
  if (dry_run) {
    CKPT_CO_TRY(plan, parts_.planner.plan(wanted));
    co_return to_response(200, run_plan_json(wanted, plan));
  }
  CKPT_CO_TRY(job, co_await parts_.service.submit(std::move(wanted)));
  co_return to_response(201, job_json(*job, parts_.states));
}

control::Task<Api::Answer> Api::adopt(HttpRequest request) {
  CKPT_CO_TRY(wanted, read_adopt(request));
  CKPT_CO_TRY(job, co_await parts_.service.adopt(std::move(wanted)));
  co_return to_response(201, job_json(*job, parts_.states));
}

control::Task<Api::Answer> Api::wait(HttpRequest request, JobId id) {
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  co_await parts_.service.wait_for_end(id, steady_clock::now() + milliseconds(timeout));
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  co_return to_response(200, job_json(*job, parts_.states));
}

control::Task<Api::Answer> Api::logs(HttpRequest request, JobId id) {
  CKPT_CO_TRY(offset, query_number(request, "offset", 0, kMaxOffset));
  CKPT_CO_TRY(limit, query_number(request, "limit", wire::kMaxLogBytes, kMaxOffset));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  const auto most = static_cast<std::uint32_t>(std::min<std::int64_t>(limit, wire::kMaxLogBytes));
  CKPT_CO_TRY(chunk, co_await parts_.logs.read(id, static_cast<std::uint64_t>(offset), most,
                                               steady_clock::now() + milliseconds(follow)));
  HttpResponse response(200, std::move(chunk.bytes));
  response.content_type = "application/octet-stream";
  response.headers.emplace_back("X-Next-Offset", std::to_string(chunk.next_offset));
  response.headers.emplace_back("X-Ended", chunk.ended ? "true" : "false");
  co_return std::move(response);
}

Api::Answer Api::stop(const HttpRequest& request, Job& job) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::int64_t grace = body.integer("grace_ms", 0, kMaxTimeMs).value_or(kDefaultStopGraceMs);
  CKPT_TRYV(body.finish());
  CKPT_TRYV(parts_.service.stop(job, grace));
  return to_response(202, job_json(job, parts_.states));
}

control::Task<Api::Answer> Api::migrate(HttpRequest request, JobId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_migrate(body, dry_run));
  if (dry_run) {
    const Job* job = parts_.jobs.find(id);
    CKPT_CO_TRY(plan, parts_.planner.plan(*job, wanted.to));
    co_return to_response(200, plan_json(*job, plan, wanted.options, parts_.nodes));
  }
  CKPT_CO_TRY(migration, co_await parts_.moves.migrate(id, std::move(wanted)));
  co_return to_response(202, migration_json(*migration));
}

// ---- migrations ----

control::Task<Api::Answer> Api::route_migrations(HttpRequest request) {
  if (request.path.size() == 2 && is_get(request)) co_return list_migrations(request);
  if (request.path.size() == 2) co_return no_such_call(request);
  const std::optional<MigrationId> id =
      parts_.migrations.find_meant(parse_migration_id(request.path[2]).value_or(0));
  if (!id) co_return Error(ErrorCode::kNotFound, "There is no migration \"" + request.path[2] + "\"");
  if (request.path.size() == 3 && is_get(request)) co_return show(*id, 200);
  if (request.path.size() == 4) {
    const std::string verb = request.path[3];
    if (verb == "watch" && is_get(request)) co_return co_await watch(std::move(request), *id);
    if (verb == "set" && is_post(request)) co_return co_await set_limits(std::move(request), *id);
    if (verb == "abort" && is_post(request)) co_return co_await abort(std::move(request), *id);
    if (verb == "resolve" && is_post(request)) co_return co_await resolve(std::move(request), *id);
  }
  co_return no_such_call(request);
}

Api::Answer Api::list_migrations(const HttpRequest& request) const {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_migration_id(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument, "after must be the id of a migration");
  const auto& all = parts_.migrations.all();
  json out = json::array();
  auto at = after ? std::make_reverse_iterator(all.lower_bound(*after)) : all.rbegin();
  for (; at != all.rend() && (page.limit == 0 || out.size() < page.limit); ++at)
    out.push_back(migration_json(at->second));
  return page_response(page, "migrations", std::move(out), at != all.rend());
}

Api::Answer Api::show(MigrationId id, unsigned status) const {
  const Migration* migration = parts_.migrations.find(id);
  if (migration == nullptr) return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  return to_response(status, migration_json(*migration));
}

control::Task<Api::Answer> Api::watch(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxOffset));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    const Migration* migration = parts_.migrations.find(id);
    // A revision that the caller has, and this coordinator has not reached, is of the time before its
    // restart.
    const bool news = migration == nullptr || !migration->open() ||
                      migration->revision != static_cast<std::uint64_t>(since);
    if (news || steady_clock::now() >= deadline) co_return show(id, 200);
    co_await parts_.migrations.changed().wait_until(deadline);
  }
}

control::Task<Api::Answer> Api::set_limits(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const auto downtime_ms = body.number("max_downtime_ms", 0, kMaxTimeMs);
  const auto bandwidth = body.integer("bandwidth", 0, kMaxBytes);
  CKPT_CO_TRYV(body.finish());
  if (!downtime_ms && !bandwidth)
    co_return Error(ErrorCode::kInvalidArgument, "Nothing to set: give max_downtime_ms or bandwidth");
  std::optional<std::int64_t> downtime_ns;
  if (downtime_ms) downtime_ns = static_cast<std::int64_t>(*downtime_ms * kNanosPerMs);
  std::optional<std::uint64_t> rate;
  if (bandwidth) rate = static_cast<std::uint64_t>(*bandwidth);
  CKPT_CO_TRYV(co_await parts_.migration_runner.set_limits(id, downtime_ns, rate));
  co_return show(id, 200);
}

control::Task<Api::Answer> Api::abort(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const std::string why = body.text("reason").value_or("");
  CKPT_CO_TRYV(body.finish());
  CKPT_CO_TRYV(parts_.migration_runner.abort(id, why));
  co_await parts_.migration_runner.caught_up(id);
  co_return show(id, 202);
}

control::Task<Api::Answer> Api::resolve(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const auto at = body.choice("at", {"source", "target"});
  CKPT_CO_TRYV(body.finish());
  if (!at) co_return Error(ErrorCode::kInvalidArgument, "Field at must be source or target");
  CKPT_CO_TRYV(co_await parts_.migration_runner.resolve(id, *at == 0 ? Side::kSource : Side::kTarget));
  co_return show(id, 202);
}

}  // namespace ckpt::coordinator
