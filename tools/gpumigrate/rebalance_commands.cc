// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/rebalance_commands.h"

#include <memory>

#include "tools/common/units.h"
#include "tools/gpumigrate/table.h"

namespace ckpt::cli {
namespace {

struct RebalanceOptions {
  bool dry_run = false;
  bool apply = false;
  bool stop = false;
  int parallel = 1;
};

constexpr std::chrono::milliseconds kDialAgain{250};

std::string list_of(const Json& texts) {
  std::string out;
  for (const Json& text : texts)
    out += (out.empty() ? "" : ", ") + printable(text.is_string() ? text.get<std::string>() : text.dump());
  return out;
}

std::string summary(const Json& plan) {
  const std::size_t moves = member(plan, "moves").size();
  if (moves == 0) return "nothing to move: no GPU would become free\n";
  return std::to_string(moves) + (moves == 1 ? " move frees " : " moves free ") +
         list_of(member(plan, "freed")) + " (" + text_of(plan, "free_before") +
         " GPUs without a job before, " + text_of(plan, "free_after") + " after)" +
         (flag_of(plan, "exhaustive") ? "" : "; there may be better plans: too many to try all") + "\n";
}

std::string view_rebalance(const Json& plan) {
  const bool run = has_value(plan, "state");
  std::string out = run ? "rebalance " + printable(text_of(plan, "state")) + ": " : "dry run: ";
  out += summary(plan);
  Table table({"JOB", "FROM", "TO", "NEEDS", "REASON", "STATE"});
  for (const Json& move : member(plan, "moves")) {
    std::string state = run ? text_of(move, "state") : "planned";
    if (has_value(move, "migration")) state += " (" + text_of(move, "migration") + ")";
    if (has_value(move, "error")) state += ": " + text_of(move, "error");
    table.add({text_of(move, "name"), text_of(move, "from"), text_of(move, "to"),
               tools::format_bytes(number_of(move, "needed_bytes")), text_of(move, "reason"), state});
  }
  if (!member(plan, "moves").empty()) out += table.text();
  for (const Json& job : member(plan, "fixed"))
    out += "stays: " + printable(text_of(job, "name")) + " (" + printable(text_of(job, "reason")) + ")\n";
  return out;
}

int print_rebalance(Context& context, const Json& plan) {
  if (context.json) {
    context.print(plan);
  } else {
    context.out << view_rebalance(plan) << std::flush;
  }
  const std::string state = text_of(plan, "state");
  return state == "failed" ? kFailed : state == "stopped" ? kInterrupted : kDone;
}

void show_news(Context& context, const Json& run, std::string& shown) {
  std::string line;
  for (const Json& move : member(run, "moves")) {
    if (text_of(move, "state") == "moving")
      line += "  " + text_of(move, "name") + " " + text_of(move, "from") + " -> " + text_of(move, "to");
  }
  if (!line.empty() && line != shown && !context.json)
    context.err << "moving" << printable(line) << "\n" << std::flush;
  shown = line;
}

// To the end of the run. Ctrl-C: no further move begins; once more: leave it alone.
Result<Json> follow_rebalance(Context& context, Json run) {
  int interrupts = 0;
  std::string shown;
  while (text_of(run, "state") == "running") {
    show_news(context, run, shown);
    if (context.coordinator.http().take_interrupts() > 0) {
      if (++interrupts > 1)
        return Error(ErrorCode::kAborted, "left the rebalance alone; it ends after its open moves");
      context.note("interrupted: no further move begins (once more: do not wait for the open ones)");
      CKPT_TRYV(context.coordinator.post("/v1/rebalance/stop", Json::object()));
    }
    auto answer = context.coordinator.get("/v1/rebalance/watch?since=" + text_of(run, "revision") +
                                          "&timeout_ms=30000");
    if (answer) {
      run = std::move(answer).assume_value();
      continue;
    }
    const ErrorCode code = answer.assume_error().code();
    if (code == ErrorCode::kAborted) continue;
    if (code == ErrorCode::kNotFound)
      return Error(
          ErrorCode::kTimedOut,
          "The coordinator has restarted and forgotten the rebalance; its open moves go on (`gpumigrate "
          "migrations`), asking again plans anew");
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut)
      return std::move(answer).assume_error();
    context.coordinator.http().pause(kDialAgain);
  }
  return run;
}

int rebalance(Context& context, const RebalanceOptions& options) {
  if (options.stop) {
    auto run = context.coordinator.post("/v1/rebalance/stop", Json::object());
    if (!run) return report(context, run.assume_error());
    print_rebalance(context, run.assume_value());
    return kDone;
  }
  if (options.apply) context.coordinator.http().catch_interrupts();
  auto plan =
      context.coordinator.post("/v1/rebalance", {{"apply", options.apply}, {"parallel", options.parallel}});
  if (!plan) return report(context, plan.assume_error());
  if (!options.apply) return print_rebalance(context, plan.assume_value());
  auto done = follow_rebalance(context, std::move(plan).assume_value());
  return done ? print_rebalance(context, done.assume_value()) : report(context, done.assume_error());
}

}  // namespace

void add_rebalance_commands(CommandTree& tree) {
  const auto options = std::make_shared<RebalanceOptions>();
  CLI::App* command = tree.add(tree.app(), "rebalance", "Move jobs together so that whole GPUs become free",
                               [options](Context& c) { return rebalance(c, *options); });
  CLI::Option* dry = command->add_flag("--dry-run", options->dry_run, "Print the plan only (default)");
  CLI::Option* apply =
      command->add_flag("--apply", options->apply, "Carry it out; the first move that fails ends it");
  command->add_flag("--stop", options->stop, "Let a rebalance that is under way begin no further move")
      ->excludes(dry)
      ->excludes(apply);
  apply->excludes(dry);
  command->add_option("--parallel", options->parallel, "Moves at a time (1)")->check(CLI::Range(1, 64));
  command->footer(
      "Exit codes of --apply: 0 done; 1 a move failed, 2 stopped: every job runs, the table says where; 5 "
      "refused.");
}

}  // namespace ckpt::cli
