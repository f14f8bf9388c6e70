// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/move_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "coordinator/migration/network_check.h"
#include "libckpt/net/control/at_once.h"

namespace ckpt::coordinator {
namespace {

struct Asked {
  MoveQuestion question;
  std::map<bool, Result<std::optional<wire::MoveNeeds>>> needs;  // the needs of the move, by whether the job
                                                                 // leaves its node
  std::vector<TargetAnswer> answers;

  [[nodiscard]] bool leaves_node(const Place& to) const { return to.node != question.from.node; }
  [[nodiscard]] bool resets_connections() const {
    return question.spec.connections == wire::Connections::kReset;
  }
  [[nodiscard]] bool takes_program_along() const { return question.spec.mode != MigrationMode::kCooperative; }
};

Error not_asked(const std::string& node, const Error& error) {
  return Error(error.code(), node + " could not be asked whether the move is possible").caused_by(error);
}

control::Task<> ask_source(NodeCalls& calls, std::shared_ptr<Asked> asked, bool leaves_node) {
  wire::CheckMove check;
  check.job = asked->question.spec.job;
  check.incarnation = asked->question.incarnation;
  check.leaves_node = leaves_node;
  check.requests_needs = leaves_node && asked->takes_program_along();
  check.connections = asked->question.spec.connections;
  auto needs = co_await calls.check_move(asked->question.from.node, std::move(check), kCheckAnswer);
  asked->needs.insert_or_assign(leaves_node, std::move(needs));
}

control::Task<Result<void>> check_target(NodeCalls& calls, const Asked& asked, Place to) {
  const auto& needs = *asked.needs.at(true);
  if (!needs)
    co_return not_asked(to.node,
                        Error(ErrorCode::kUnavailable,
                              "the agent of " + asked.question.from.node +
                                  " is an older version and does not report which files the job has open"));
  wire::CheckTarget check;
  check.spec = asked.question.spec;
  check.spec.incarnation = asked.question.incarnation + 1;
  check.spec.env.clear();  // the check needs no environment, because it starts no part of the program
  for (wire::RankSpec& rank : check.spec.ranks) rank.gpu_index = to.gpu;
  check.needs = *needs;
  const auto accepted = co_await calls.check_target(to.node, std::move(check), kCheckAnswer);
  if (accepted) co_return ok();
  const Error& error = accepted.error();
  const bool is_silent = error.code() == ErrorCode::kTimedOut || error.code() == ErrorCode::kUnavailable;
  co_return is_silent ? not_asked(to.node, error) : error;
}

control::Task<Result<void>> would_accept(NodeCalls& calls, const Asked& asked, std::size_t at) {
  const MoveQuestion::Target& target = asked.question.targets[at];
  if (!asked.leaves_node(target.place)) co_return ok();
  if (!target.network) co_return target.network.error();
  // An older target would accept the program, and the source would refuse the target.
  const bool resets = asked.takes_program_along() && asked.resets_connections();
  if (resets && !target.resets_connections)
    co_return Error(ErrorCode::kRefused,
                    "The move resets connections (--connections reset), but the program would see them as "
                    "closed normally under the older agent of " +
                        target.place.node + ": update it");
  if (asked.takes_program_along()) {
    CKPT_CO_TRYV(co_await check_target(calls, asked, target.place));
  }
  co_return co_await check_network(calls, asked.question.from, target.place, *target.network);
}

control::Task<> ask_target(NodeCalls& calls, std::shared_ptr<Asked> asked, std::size_t at) {
  TargetAnswer& answer = asked->answers[at];
  const auto& source = asked->needs.at(asked->leaves_node(answer.place));
  answer.is_of_source = !source;
  if (!source) {
    answer.acceptance = source.error();
    co_return;
  }
  if (*source) answer.ended_connections = (*source)->ended_connections;
  answer.acceptance = co_await would_accept(calls, *asked, at);
}

}  // namespace

control::Task<std::vector<TargetAnswer>> ask_targets(NodeCalls& calls, MoveQuestion question) {
  const auto executor = co_await control::asio::this_coro::executor;
  const auto asked = std::make_shared<Asked>();
  asked->question = std::move(question);
  std::set<bool> kinds;
  for (const MoveQuestion::Target& target : asked->question.targets) {
    asked->answers.emplace_back().place = target.place;
    kinds.insert(asked->leaves_node(target.place));
  }
  std::vector<control::Task<>> asks;
  for (const bool leaves_node : kinds) asks.push_back(ask_source(calls, asked, leaves_node));
  co_await control::at_once(executor, "a question to a job's node", std::move(asks));
  std::vector<control::Task<>> checks;
  for (std::size_t at = 0; at < asked->answers.size(); ++at) checks.push_back(ask_target(calls, asked, at));
  co_await control::at_once(executor, "a question to a target", std::move(checks));
  co_return std::move(asked->answers);
}

std::string refusals_text(const std::vector<TargetAnswer>& answers) {
  std::vector<std::string> texts;
  for (const TargetAnswer& answer : answers) {
    if (answer.acceptance) continue;
    const std::string text = answer.acceptance.error().to_string();
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::vector<Place> best_of_nodes(const std::vector<Candidate>& candidates, const std::string& except) {
  std::vector<Place> places;
  std::set<std::string> nodes = {except};
  for (const Candidate& candidate : candidates) {
    if (!candidate.suitable || places.size() == kMaxAskedTargets) break;
    if (nodes.insert(candidate.place.node).second) places.push_back(candidate.place);
  }
  return places;
}

}  // namespace ckpt::coordinator
