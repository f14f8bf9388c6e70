// SPDX-License-Identifier: Apache-2.0
// health, policy pause|resume|reset-breaker.
#include <memory>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

std::string view_policy(const Json& policy) {
  const Json& breaker = member(policy, "breaker");
  std::string out = "automatic moves: ";
  if (flag_of(breaker, "open"))
    out += "STOPPED since " + text_of(breaker, "since") + ": " + text_of(breaker, "reason") +
           " (`gpumigrate policy reset-breaker`)";
  else
    out += "on, " + text_of(breaker, "recent") + " of at most " + text_of(breaker, "limit") + " within " +
           tools::format_milliseconds(number_of(breaker, "window_ms"));
  out = printable(out) + "\n";
  for (const Json& node : member(policy, "paused"))
    out += printable("paused: " + node.get<std::string>() + " (`gpumigrate policy resume " +
                     node.get<std::string>() + "`)") +
           "\n";
  return out;
}

std::string view_evacuations(const Json& evacuations) {
  if (evacuations.empty()) return "no evacuations\n";
  Table table({"ID", "JOB", "STATE", "FROM", "TO", "WHAT", "LOST", "CREATED", "REASON", "NOTE"});
  for (const Json& e : evacuations) {
    table.add({text_of(e, "id"), text_of(e, "job_name"), text_of(e, "state"), text_of(e, "from"),
               text_of(e, "to"), text_of(e, "outcome") + (flag_of(e, "urgent") ? "" : ", in time"),
               has_value(e, "lost_ms") ? tools::format_milliseconds(number_of(e, "lost_ms")) : "-",
               text_of(e, "created"), text_of(e, "reason"), text_of(e, "note")});
  }
  return table.text();
}

std::string view_findings(const Json& findings) {
  if (findings.empty()) return "no findings\n";
  Table table({"GPU", "TIME", "XID", "SOURCE", "CORDON", "REASON"});
  for (const Json& f : findings) {
    table.add({text_of(f, "node") + ":" + text_of(f, "gpu"), text_of(f, "time"), text_of(f, "xid"),
               text_of(f, "source"), flag_of(f, "cordon") ? "yes" : "no", text_of(f, "reason")});
  }
  return table.text();
}

int show_health(Context& context) {
  auto answer = context.coordinator.get("/v1/health");
  if (!answer) return report(context, answer.assume_error());
  const Json& health = answer.assume_value();
  if (context.json) {
    context.print(health);
    return kDone;
  }
  context.out << view_policy(member(health, "policy")) << "\n"
              << view_evacuations(member(health, "evacuations")) << "\n"
              << view_findings(member(health, "findings")) << std::flush;
  return kDone;
}

int change_policy(Context& context, const std::string& verb, const Json& body) {
  auto answer = context.coordinator.post("/v1/policy/" + verb, body);
  if (!answer) return report(context, answer.assume_error());
  if (context.json)
    context.print(answer.assume_value());
  else
    context.out << view_policy(answer.assume_value()) << std::flush;
  return kDone;
}

// Another family of commands may have made it already.
Command policy_parent(CommandTree& tree) {
  const auto found = tree.app().find_subcommand("policy");
  return found ? *found : tree.add_parent("policy", "What is done about GPUs in trouble");
}

struct PolicyOptions {
  std::string node;
  std::string reason;
};

}  // namespace

void add_policy_commands(CommandTree& tree) {
  const auto options = std::make_shared<PolicyOptions>();
  tree.begin_family("Health");
  tree.add(tree.app(), "health", "What was found about GPUs, and what was done about it", show_health);
  Command policy = policy_parent(tree);
  policy.require_subcommand();
  Command pause = tree.add(policy, "pause", "Record what a node's GPUs report, and do nothing about it",
                           [options](Context& c) {
                             Json body = {{"node", options->node}};
                             if (!options->reason.empty()) body["reason"] = options->reason;
                             return change_policy(c, "pause", body);
                           });
  pause.add_option("node", options->node, "Its name").required();
  pause.add_option("--reason", options->reason, "For the records");
  tree.add(policy, "resume", "Act on what the node reports from now on",
           [options](Context& c) {
             return change_policy(c, "resume", {{"node", options->node}});
           })
      .add_option("node", options->node, "Its name")
      .required();
  tree.add(policy, "reset-breaker", "Let automatic moves go on after the circuit breaker has stopped them",
           [](Context& c) { return change_policy(c, "reset-breaker", Json::object()); });
}

}  // namespace ckpt::cli
