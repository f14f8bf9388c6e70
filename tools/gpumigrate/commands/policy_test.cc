// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/policy_test.h"

#include <memory>

#include "libckpt/health/decide.h"
#include "libckpt/health/table.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

// There are two processes on the GPU, so that the output shows the decision for each.
constexpr std::int32_t kThisProcess = 1;
constexpr std::int32_t kAnotherProcess = 2;

health::Evidence evidence_of(const health::XidTable& table, const PolicyTestOptions& options,
                             const std::optional<health::XidLine>& line) {
  health::Evidence evidence;
  evidence.gpu.lost = options.lost;
  evidence.gpu.silent = options.silent;
  evidence.gpu.recovery = options.recovery;
  if (options.probe == "ok") evidence.gpu.probe = health::GpuProbe::kPassed;
  if (options.probe == "failed") evidence.gpu.probe = health::GpuProbe::kFailed;
  if (options.probe == "hung") evidence.gpu.probe = health::GpuProbe::kHung;
  evidence.gpu.contains_errors = health::contains_memory_errors(options.model);
  const std::int32_t victim = options.victim ? kThisProcess : 0;
  for (const std::uint32_t xid : options.xids) {
    health::SeenXid seen;
    seen.xid = xid;
    seen.victim = victim;
    evidence.xids.push_back(std::move(seen));
  }
  if (line) {
    evidence.xids.push_back(health::seen_of(table, *line));
    evidence.xids.back().victim = victim;
  }
  health::ProcessFacts process;
  process.pid = kThisProcess;
  process.probe = options.dead ? health::Probe::kDead : health::Probe::kUnknown;
  process.uses_p2p = options.p2p;
  evidence.processes.push_back(process);
  process.pid = kAnotherProcess;
  process.probe = health::Probe::kAlive;
  process.uses_p2p = false;
  evidence.processes.push_back(process);
  return evidence;
}

Json row_json(const health::XidTable& table, std::uint32_t xid) {
  const health::XidRow* row = table.xid(xid);
  if (row == nullptr) return {{"xid", xid}, {"known", false}};
  const std::string origin = table.origin_of_xid(xid);
  return {{"xid", xid},
          {"known", true},
          {"name", row->name},
          {"cause", row->cause},
          {"memory_readable", health::to_string(row->memory_readable)},
          {"action", health::to_string(row->action)},
          {"evacuation", health::to_string(row->evacuation)},
          {"source", row->source},
          {"table", origin.empty() ? "built in" : origin}};
}

Json to_json(const health::XidTable& table, const health::Evidence& evidence,
             const health::Decision& decision) {
  Json rows = Json::array();
  for (const health::SeenXid& seen : evidence.xids) rows.push_back(row_json(table, seen.xid));
  const auto process = [](const health::ProcessVerdict& verdict) {
    return Json{{"outcome", health::to_string(verdict.outcome)}, {"reason", verdict.reason}};
  };
  return {{"outcome", health::to_string(decision.outcome)},
          {"reason", decision.reason},
          {"cordon", decision.cordon},
          {"urgent", decision.urgent},
          {"leave_node", decision.leave_node},
          {"xid", decision.xid},
          {"recovery", decision.recovery},
          {"wants_probe", health::wants_probe(table, evidence, decision)},
          {"this_process", process(decision.processes[0])},
          {"another_process", process(decision.processes[1])},
          {"rows", std::move(rows)}};
}

std::string to_text(const Json& answer) {
  const auto yes = [](const Json& value) { return value.get<bool>() ? "yes" : "no"; };
  Table outcomes({"", "outcome", "reason"});
  for (const auto& [label, key] :
       {std::pair("this process", "this_process"), std::pair("another process", "another_process")})
    outcomes.add({label, text_of(answer[key], "outcome"), text_of(answer[key], "reason")});
  std::string text = outcomes.text();
  text += std::string("cordon ") + yes(answer["cordon"]) + "  urgent " + yes(answer["urgent"]) +
          "  leave the node " + yes(answer["leave_node"]) + "\n";
  for (const Json& row : answer["rows"]) {
    text += "Xid " + std::to_string(row["xid"].get<std::uint32_t>()) + ": ";
    if (!row["known"].get<bool>()) {
      text += "not in the table\n";
      continue;
    }
    text += printable(row["name"].get<std::string>()) + ", cause " +
            printable(row["cause"].get<std::string>()) +
            "; memory readable: " + row["memory_readable"].get<std::string>() +
            "; NVIDIA: " + row["action"].get<std::string>() +
            "; evacuation: " + row["evacuation"].get<std::string>() + " (" +
            printable(row["table"].get<std::string>()) + ": " + printable(row["source"].get<std::string>()) +
            ")\n";
  }
  return text;
}

}  // namespace

int test_policy(Context& context, const PolicyTestOptions& options) {
  auto table = health::XidTable::built_in();
  for (const std::string& path : options.tables) {
    if (auto applied = table.override_with_file(path); !applied) return report(context, applied.error());
  }
  std::optional<health::XidLine> line;
  if (!options.line.empty()) {
    line = health::parse_xid_line(options.line);
    if (!line)
      return report(
          context,
          Error(ErrorCode::kInvalidArgument,
                "--line: the text is not a line of the kernel log like \"NVRM: Xid (PCI:...): N, ...\""));
  }
  if (options.xids.empty() && !line && !options.recovery && !options.lost && !options.silent &&
      options.probe.empty())
    return report(
        context,
        Error(ErrorCode::kInvalidArgument,
              "policy test: name a fault with --xid, --recovery, --line, --lost, --silent or --probe"));
  const health::Evidence evidence = evidence_of(table, options, line);
  const Json answer = to_json(table, evidence, health::decide(table, evidence));
  if (context.json) {
    context.print(answer);
  } else {
    context.out << to_text(answer);
  }
  return kDone;
}

void add_policy_test(CommandTree& tree) {
  auto policy = tree.app().find_subcommand("policy");
  if (!policy) {
    tree.begin_family("Health");
    policy = tree.add_parent("policy", "Control the reaction to faulty GPUs");
    policy->require_subcommand();
  }
  auto options = std::make_shared<PolicyTestOptions>();
  Command test =
      tree.add(*policy, "test",
               "Show the decision about a fault and its reason, without a coordinator; change nothing",
               [options](Context& c) { return test_policy(c, *options); });
  test.add_example("gpumigrate policy test --xid 79", "See the decision about an Xid");
  test.add_option("--xid", options->xids, "Number of an Xid; several Xids are judged together")
      .in_range(1, 99999);
  test.add_option("--recovery", options->recovery,
                  "Recovery action that the driver requests (NVML field 230)")
      .in_range(0, 255);
  test.add_option("--line", options->line, "A line of the kernel log, instead of --xid");
  test.add_flag("--victim", options->victim, "The Xid names this process");
  test.add_flag("--dead", options->dead, "This process's context is known to be lost");
  test.add_flag("--p2p", options->p2p, "This process uses peer-to-peer access");
  test.add_flag("--lost", options->lost, "The driver has lost the GPU");
  test.add_flag("--silent", options->silent, "NVML does not answer");
  test.add_option("--probe", options->probe, "Result of a probe of the GPU").one_of({"ok", "failed", "hung"});
  test.add_option("--gpu-model", options->model,
                  "Model of the GPU, like \"NVIDIA H200\": some models confine memory errors to one process");
  test.add_option("--table", options->tables,
                  "A table (CSV) whose rows replace the built-in rows; may be repeated")
      .called("FILE")
      .one_value_each();
}

}  // namespace ckpt::cli
