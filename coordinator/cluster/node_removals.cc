// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/node_removals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "coordinator/cluster/fence_command.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/api/site.h"
#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

std::vector<std::string> texts_of(const std::vector<JobId>& jobs) {
  std::vector<std::string> texts;
  texts.reserve(jobs.size());
  for (const JobId id : jobs) texts.push_back(job_text(id));
  return texts;
}

}  // namespace

std::vector<JobId> NodeRemovals::jobs_on(const std::string& node) const {
  std::vector<JobId> found;
  for (const auto& [id, job] : deps_.jobs.all()) {
    if (holds_gpu(job.state) && job.node() == node) found.push_back(id);
  }
  return found;
}

Result<void> NodeRemovals::check(const std::string& name, bool force, bool fenced) const {
  const auto refused = [&](const std::string& reason) {
    return Error(ErrorCode::kRefused, "Node " + name + " cannot be removed: " + reason);
  };
  const Node* node = deps_.nodes.find(name);
  if (fenced && !force) return refused("--fenced requires --force");
  if (node == nullptr) return Error(ErrorCode::kNotFound, "There is no node \"" + name + "\"");
  if (force && node->connected())
    return refused("it is connected, and --force is only for lost nodes: `drain` it instead");
  for (const Migration& migration : deps_.migrations.open()) {
    if (migration.from.node == name || migration.to.node == name)
      return refused("migration " + migration_text(migration.id) +
                     " is open (`abort` or `resolve` it first)");
  }
  for (const auto& [id, job] : deps_.jobs.all()) {
    const bool concerned = job.node() == name || (job.operation && job.operation->to_node == name);
    if (job.operation && concerned) return refused("an image operation of job " + job_text(id) + " is open");
  }
  const std::vector<JobId> jobs = jobs_on(name);
  if (jobs.empty() || force) return ok();
  return refused(
      fmt::format("it has jobs: {} (`drain` it; --force removes a lost node together with its jobs)",
                  fmt::join(texts_of(jobs), ", ")));
}

Result<void> NodeRemovals::allow_restores(const std::string& node) {
  std::vector<JobId> concerned;
  for (const auto& [id, job] : deps_.jobs.all()) {
    if ((job.unfenced && job.node() == node) || job.unfenced_nodes.contains(node)) concerned.push_back(id);
  }
  for (const JobId id : concerned) {
    CKPT_TRYV(deps_.job_runner.order(id, lifecycle::NodeFenced{node}));
  }
  return ok();
}

// The stored removal is the decision: complete() carries it out, here or after a restart (finish()).
Result<std::vector<JobId>> NodeRemovals::remove(const std::string& node, bool force, bool fenced) {
  // The operator may add --fenced in a later call, after the node was removed without it.
  if (deps_.removed.contains(node) && deps_.nodes.find(node) == nullptr && force && fenced) {
    CKPT_TRYV(deps_.removed.store(node, true));
    CKPT_TRYV(allow_restores(node));
    return std::vector<JobId>();
  }
  CKPT_TRYV(check(node, force, fenced));
  CKPT_TRYV(deps_.removed.check_room(node));
  if (!force) {
    CKPT_TRYV(deps_.denied.deny_node(node));
  }
  CKPT_TRYV(deps_.removed.store(node, fenced));
  return complete(node, fenced);
}

Result<std::vector<JobId>> NodeRemovals::complete(const std::string& node, bool fenced) {
  std::vector<JobId> lost = jobs_on(node);
  for (const JobId id : lost) deps_.job_runner.fact(id, lifecycle::NodeRemoved{!fenced});
  if (fenced) {
    CKPT_TRYV(allow_restores(node));
  }
  CKPT_TRYV(deps_.sessions.remove(node));  // after this, finish() finds no row of the node and does not
                                           // repeat the removal
  deps_.events.add(
      "node-removed",
      fmt::format("node {} was removed{}", node,
                  lost.empty() ? "" : fmt::format(" with its jobs {}", fmt::join(texts_of(lost), ", "))),
      node);
  return lost;
}

void NodeRemovals::finish() {
  for (const auto& [node, fenced] : deps_.removed.all()) {
    if (deps_.nodes.find(node) == nullptr) continue;
    if (auto completed = complete(node, fenced); !completed)
      spdlog::error("the removal of node {} was not completed: {}", node, completed.error().to_string());
  }
}

Result<void> NodeRemovals::add(const std::string& node) {
  if (!deps_.removed.contains(node))
    return Error(ErrorCode::kNotFound, "No node \"" + node + "\" was removed from this cluster");
  CKPT_TRYV(deps_.denied.allow_node(node));
  CKPT_TRYV(deps_.removed.forget(node));
  deps_.events.add("node-added", fmt::format("node {} may join again under its name", node), node);
  return ok();
}

bool NodeRemovals::handles(const HttpRequest& request) const {
  return request.path[1] == "nodes" && request.path.size() == 4 &&
         (request.path[3] == "remove" || request.path[3] == "add");
}

control::Task<Result<HttpResponse>> NodeRemovals::handle(HttpRequest request) {
  if (!is_post(request)) co_return no_such_call(request);
  const std::string& node = request.path[2];
  if (request.path[3] == "remove") co_return co_await handle_removal(node, request.body);
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  CKPT_CO_TRYV(body.finish());
  CKPT_CO_TRYV(add(node));
  const api::NodeSubject view{node};
  co_return to_response(200, record::to_answer(view));
}

// Removes a node. If the fence fails, a lost node is removed nevertheless: its jobs are lost, and their
// images may not be restored.
control::Task<Result<HttpResponse>> NodeRemovals::handle_removal(std::string node, std::string text) {
  CKPT_CO_TRY(body, BodyReader::parse(text));
  const bool force = body.boolean("force").value_or(false);
  bool fenced = body.boolean("fenced").value_or(false);
  CKPT_CO_TRYV(body.finish());
  std::string problem;
  if (force && !fenced && !deps_.fence_command.empty()) {
    CKPT_CO_TRYV(check(node, force, fenced));
    const auto proof = co_await run_fence_command(deps_.fence_command, node);
    fenced = proof.has_value();
    if (!fenced) problem = proof.error().to_string();
  }
  co_await deps_.output.copy_all_of(node);  // the node's logs are not readable after its removal
  CKPT_CO_TRY(lost, remove(node, force, fenced));
  api::NodeRemoval view{.node = node, .fenced = fenced, .lost = texts_of(lost)};
  if (!problem.empty()) view.failure = api::FenceFailure{problem};
  co_return to_response(200, record::to_answer(view));
}

}  // namespace ckpt::coordinator
