// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/node_joins.h"

#include <sstream>

#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/api/site.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
// The term of a token, plus an equal allowance for clock differences.
constexpr std::int64_t kRememberedS = 2 * std::chrono::seconds(tls::kJoinTerm).count();

std::int64_t unix_time_s() {
  return wall_clock_ms() / 1000;
}

}  // namespace

Result<void> NodeJoins::load(Answers answers) {
  answers_ = std::move(answers);
  const auto text = read_file(file_, kLargestFile);
  if (!text) return text.error().code() == ErrorCode::kNotFound ? Result<void>(ok()) : text.error();
  std::istringstream lines(*text);
  std::string id;
  std::int64_t when_s = 0;
  while (lines >> id >> when_s) used_.emplace(id, when_s);
  return ok();
}

bool NodeJoins::handles(const HttpRequest& request) const {
  return request.path[1] == "join";
}

control::Task<Result<HttpResponse>> NodeJoins::handle(HttpRequest request) {
  if (request.peer.kind != tls::Peer::Kind::kJoiner)
    co_return Error(ErrorCode::kRefused,
                    "A node must join with the certificate of a join token: see `gpumigrate node join`");
  const std::string id = request.peer.name.substr(0, tls::kJoinIdLength);
  const std::string node = request.peer.name.substr(tls::kJoinIdLength + 1);
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  const std::string signing_request = body.text("request").value_or("");
  CKPT_CO_TRYV(body.finish());
  if (!deps_.renewals.can_certify())
    co_return Error(ErrorCode::kRefused, "certificate_authority is not set in the coordinator's settings");
  CKPT_CO_TRYV(co_await use_up(id));
  const bool was_removed = deps_.removed.contains(node);
  if (was_removed) {
    CKPT_CO_TRYV(deps_.denied.deny_node(node));
  }
  const tls::Peer nobody;  // a named object, because g++ 12 destroys a temporary made in the call twice
  CKPT_CO_TRY(certificate, co_await deps_.renewals.certify(node, signing_request, nobody));
  if (was_removed) {
    CKPT_CO_TRYV(deps_.removed.forget(node));
  }
  deps_.events.add("node-joined", "node " + node + " has received its certificate with a join token", node);
  const api::NodeJoin view{.node = node,
                           .certificate = certificate,
                           .agent_address = answers_.agent_address,
                           .agent_token = answers_.agent_token};
  co_return to_response(200, record::to_answer(view));
}

control::Task<Result<void>> NodeJoins::use_up(std::string id) {
  std::erase_if(used_, [](const auto& entry) { return unix_time_s() - entry.second > kRememberedS; });
  if (used_.size() >= kMaxUsed)
    co_return Error(ErrorCode::kRefused, "Too many nodes have joined within twenty minutes: try again later");
  if (!used_.emplace(id, unix_time_s()).second)
    co_return Error(ErrorCode::kRefused,
                    "This join token was already used: create another one with `gpumigrate node token`");
  std::string text;
  for (const auto& [used, when_s] : used_) text += used + " " + std::to_string(when_s) + "\n";
  auto write = [text, file = file_] { return write_file_durably(file, text, 0600); };
  co_return co_await control::offload(disk_, std::move(write));
}

}  // namespace ckpt::coordinator
