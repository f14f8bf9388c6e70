// SPDX-License-Identifier: Apache-2.0
// `adopt`: makes a process that gpumigrate did not start a job on its current node.
#include "coordinator/operations/service.h"

namespace ckpt::coordinator {
namespace {

struct Found {
  Found(std::string name, wire::ProcessFacts known) : node(std::move(name)), facts(std::move(known)) {}
  std::string node;
  wire::ProcessFacts facts;
};

// Checks whether `error` is more informative than `before`. The error of a node without the process is less
// informative than that of the process's node.
bool says_more(const Error& error, const std::optional<Error>& before) {
  return !before || before->code() == ErrorCode::kNotFound || before->code() == ErrorCode::kUnavailable ||
         error.message().find("already") != std::string::npos;
}

control::Task<Result<Found>> find_process(NodeCalls& calls, std::vector<std::string> nodes,
                                          wire::InspectProcess request) {
  std::optional<Error> obstacle;
  std::optional<Found> found;
  for (const std::string& node : nodes) {
    auto facts = co_await calls.inspect(node, request);
    if (facts) {
      found.emplace(node, *std::move(facts));
      break;
    }
    if (says_more(facts.error(), obstacle)) obstacle = facts.error();
  }
  if (found) co_return std::move(*found);
  if (obstacle) co_return *obstacle;
  co_return Error(ErrorCode::kUnavailable, "No node is connected");
}

}  // namespace

control::Task<Result<WholeJob>> Service::adopt(AdoptRequest request) {
  if (request.node) {
    CKPT_CO_TRYV(check_exists(deps_.nodes, *request.node, std::nullopt));
  }
  std::vector<std::string> nodes;
  for (const auto& [name, node] : deps_.nodes.all()) {
    if (node.connected() && (!request.node || *request.node == name)) nodes.push_back(name);
  }
  wire::InspectProcess question;
  question.pid = request.pid;
  question.machine = request.machine;
  question.start_ticks = request.start_ticks;
  CKPT_CO_TRY(found, co_await find_process(deps_.calls, std::move(nodes), question));
  wire::JobSpec spec;
  spec.name = request.name;
  spec.argv = found.facts.argv;
  spec.cwd = found.facts.cwd;
  spec.uid = found.facts.uid;
  spec.gid = found.facts.gid;
  spec.mode = MigrationMode::kAdopted;
  spec.adopt_pid = request.pid;
  spec.adopt_start_ticks = found.facts.start_ticks;
  std::vector<Placing> placings;
  placings.push_back({Place(found.node, found.facts.gpu_index), "it ran there when it was adopted"});
  CKPT_CO_TRY(job, deps_.admission.create(std::move(spec), placings));
  co_return co_await start_all(job.id);
}

}  // namespace ckpt::coordinator
