// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/health_section.h"

#include "coordinator/api/health_views.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMaxShown = 5'000;

}  // namespace

bool HealthSection::handles(const HttpRequest& request) const {
  return request.path[1] == "health" || request.path[1] == "policy";
}

control::Task<Result<HttpResponse>> HealthSection::handle(HttpRequest request) {
  const auto& path = request.path;
  if (path[1] == "health" && path.size() == 2 && is_get(request)) co_return show(request);
  if (path[1] == "policy" && path.size() == 2 && is_get(request)) co_return show_policy();
  if (path[1] == "policy" && path.size() == 3 && is_post(request)) {
    if (path[2] == "pause" || path[2] == "resume") co_return policy(request, path[2] == "pause");
    if (path[2] == "reset-breaker") co_return reset_breaker(request);
  }
  co_return no_such_call(request);
}

HttpResponse HealthSection::show_policy() const {
  return to_response(200, record::to_answer(policy_view(deps_.policy, deps_.evacuations)));
}

HealthSection::Answer HealthSection::show(const HttpRequest& request) const {
  CKPT_TRY(limit, query_number(request, "limit", 200, kMaxShown));
  const auto room = [&](const auto& list) { return std::ssize(list) < limit; };
  api::Health view;
  view.policy = policy_view(deps_.policy, deps_.evacuations);
  const auto& moved = deps_.table.all();
  for (auto at = moved.rbegin(); at != moved.rend() && room(view.evacuations); ++at)
    view.evacuations.push_back(evacuation_view(at->second));
  const auto& found = deps_.health.all();
  for (auto at = found.rbegin(); at != found.rend() && room(view.findings); ++at)
    view.findings.push_back(finding_view(*at));
  return to_response(200, record::to_answer(view));
}

HealthSection::Answer HealthSection::policy(const HttpRequest& request, bool pause) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::string node = body.text("node").value_or("");
  const std::string reason = pause ? body.text("reason").value_or("") : "";
  CKPT_TRYV(body.finish());
  CKPT_TRYV(check_known(Scope(node, std::nullopt), deps_.nodes));
  CKPT_TRYV(pause ? deps_.policy.pause(node, reason) : deps_.policy.resume(node));
  return show_policy();
}

HealthSection::Answer HealthSection::reset_breaker(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.policy.reset_breaker());
  return show_policy();
}

}  // namespace ckpt::coordinator
