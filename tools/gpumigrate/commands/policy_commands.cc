// SPDX-License-Identifier: Apache-2.0
// The commands health and policy pause, resume and reset-breaker.
#include <memory>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

int show_health(Context& context) {
  auto answer = context.coordinator.get("/v1/health");
  if (!answer) return report(context, answer.error());
  const Json& health = *answer;
  if (context.json) {
    context.print(health);
    return kDone;
  }
  context.out << view_health(record::from_answer<api::Health>(health), context.layout()) << std::flush;
  return kDone;
}

int change_policy(Context& context, const std::string& verb, const Json& body) {
  auto answer = context.coordinator.post("/v1/policy/" + verb, body);
  if (!answer) return report(context, answer.error());
  if (context.json)
    context.print(*answer);
  else
    context.out << view_policy(record::from_answer<api::Policy>(*answer), context.layout()) << std::flush;
  return kDone;
}

// Returns the command `policy`. Another family of commands may already have added this command.
Command policy_parent(CommandTree& tree) {
  const auto found = tree.app().find_subcommand("policy");
  return found ? *found : tree.add_parent("policy", "Control the reaction to faulty GPUs");
}

struct PolicyOptions {
  std::string node;
  std::string reason;
};

}  // namespace

void add_policy_commands(CommandTree& tree) {
  const auto options = std::make_shared<PolicyOptions>();
  tree.begin_family("Health");
  tree.add(tree.app(), "health", "Show faults of GPUs, and the moves that they caused", show_health);
  Command policy = policy_parent(tree);
  policy.require_subcommand();
  Command pause = tree.add(policy, "pause", "Record faults of a node's GPUs, but do not act on them",
                           [options](Context& c) {
                             Json body = {{"node", options->node}};
                             if (!options->reason.empty()) body["reason"] = options->reason;
                             return change_policy(c, "pause", body);
                           });
  pause.add_option("node", options->node, "Name of the node").required();
  pause.add_option("--reason", options->reason, "The reason, for the records");
  tree.add(policy, "resume", "Act again on faults that the node reports from now on",
           [options](Context& c) {
             return change_policy(c, "resume", {{"node", options->node}});
           })
      .add_option("node", options->node, "Name of the node")
      .required();
  tree.add(policy, "reset-breaker", "Allow automatic moves again after the circuit breaker has stopped them",
           [](Context& c) { return change_policy(c, "reset-breaker", Json::object()); });
}

}  // namespace ckpt::cli
