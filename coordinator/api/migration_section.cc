// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/migration_section.h"

#include "coordinator/api/migration_views.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxDowntimeMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxBandwidth = std::int64_t{1} << 50;
constexpr std::int64_t kMaxSince = std::int64_t{1} << 60;

}  // namespace

bool MigrationSection::handles(const HttpRequest& request) const {
  return request.path[1] == "migrations";
}

control::Task<Result<HttpResponse>> MigrationSection::handle(HttpRequest request) {
  if (request.path.size() == 2 && is_get(request)) co_return list(request);
  if (request.path.size() == 2) co_return no_such_call(request);
  const std::optional<MigrationId> id = table_.find_meant(parse_migration_id(request.path[2]).value_or(0));
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

MigrationSection::Answer MigrationSection::list(const HttpRequest& request) const {
  CKPT_TRY(page, page_of(request));
  const auto after = parse_migration_id(page.after);
  if (!page.after.empty() && !after)
    return Error(ErrorCode::kInvalidArgument, "Parameter \"after\" must be the id of a migration");
  const auto& all = table_.all();
  json out = json::array();
  auto at = after ? std::make_reverse_iterator(all.lower_bound(*after)) : all.rbegin();
  for (; at != all.rend() && (page.limit == 0 || out.size() < page.limit); ++at)
    out.push_back(migration_json(at->second));
  return page_response(page, "migrations", std::move(out), at != all.rend());
}

MigrationSection::Answer MigrationSection::show(MigrationId id, unsigned status) const {
  const Migration* migration = table_.find(id);
  if (migration == nullptr) return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  return to_response(status, record::to_answer(api::MigrationDetail{.migration = migration_view(*migration),
                                                                    .moved_with = moved_with(*migration)}));
}

// Returns the ids of the other ranks' migrations in the same move, in ascending order. A gang's migrations
// begin one after another.
std::vector<std::string> MigrationSection::moved_with(const Migration& rank) const {
  std::vector<std::string> ids;
  if (rank.gang_move == 0) return ids;
  const auto& all = table_.all();
  for (auto at = all.lower_bound(rank.gang_move); at != all.end(); ++at)
    if (at->second.gang_move == rank.gang_move && at->first != rank.id)
      ids.push_back(migration_text(at->first));
  return ids;
}

control::Task<MigrationSection::Answer> MigrationSection::watch(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxSince));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    const Migration* migration = table_.find(id);
    // A different revision counts as new. A caller's revision that this coordinator has not reached yet dates
    // from before a restart of the coordinator.
    const bool is_new = migration == nullptr || !migration->open() ||
                        migration->revision != static_cast<std::uint64_t>(since);
    if (is_new || steady_clock::now() >= deadline) co_return show(id, 200);
    co_await table_.changed().wait_until(deadline);
  }
}

control::Task<MigrationSection::Answer> MigrationSection::set_limits(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const auto downtime_ms = body.number("max_downtime_ms", 0, kMaxDowntimeMs);
  const auto bandwidth = body.integer("bandwidth", 0, kMaxBandwidth);
  CKPT_CO_TRYV(body.finish());
  if (!downtime_ms && !bandwidth)
    co_return Error(ErrorCode::kInvalidArgument, "Nothing to set: give \"max_downtime_ms\" or \"bandwidth\"");
  std::optional<std::int64_t> downtime_ns;
  if (downtime_ms) downtime_ns = static_cast<std::int64_t>(*downtime_ms * kNanosPerMs);
  std::optional<std::uint64_t> rate;
  if (bandwidth) rate = static_cast<std::uint64_t>(*bandwidth);
  CKPT_CO_TRYV(co_await runner_.set_limits(id, downtime_ns, rate));
  co_return show(id, 200);
}

control::Task<MigrationSection::Answer> MigrationSection::abort(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const std::string reason = body.text("reason").value_or("");
  CKPT_CO_TRYV(body.finish());
  CKPT_CO_TRYV(runner_.abort(id, reason));
  co_await runner_.caught_up(id);
  co_return show(id, 202);
}

control::Task<MigrationSection::Answer> MigrationSection::resolve(HttpRequest request, MigrationId id) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const auto at = body.named<Side>("at");
  CKPT_CO_TRYV(body.finish());
  if (!at) co_return Error(ErrorCode::kInvalidArgument, "Field \"at\" must be source or target");
  CKPT_CO_TRYV(co_await runner_.resolve(id, *at));
  co_return show(id, 202);
}

}  // namespace ckpt::coordinator
