// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/rebalance_commands.h"

#include <memory>
#include <optional>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/wait.h"

namespace ckpt::cli {
namespace {

struct RebalanceOptions {
  bool dry_run = false;
  bool apply = false;
  bool stop = false;
  int parallel = 1;
  std::string timeout;
};

using Clock = std::chrono::steady_clock;

template <class Answer>
Answer print_rebalance(Context& context, const Json& answer) {
  const auto shown = record::from_answer<Answer>(answer);
  if (context.json) {
    context.print(answer);
  } else {
    context.out << view_rebalance(shown, context.layout()) << std::flush;
  }
  return shown;
}

int exit_code_of(const api::Rebalance& run) {
  return run.state == "failed" ? kFailed : run.state == "stopped" ? kInterrupted : kDone;
}

// A follower of a rebalance until its end. After the first Ctrl-C no further move begins. The second Ctrl-C
// ends only the command.
class RebalanceFollower {
 public:
  RebalanceFollower(Context& context, const Wait& wait) : context_(context), wait_(wait) {}

  Result<Json> follow(Json answered) {
    while (true) {
      const auto run = record::from_answer<api::Rebalance>(answered);
      if (run.state != "running") return answered;
      show_news(run);
      if (context_.coordinator.http().consume_interrupts() > 0) {
        CKPT_TRYV(interrupted());
      }
      if (wait_.is_over_time()) return wait_.timed_out();
      auto answer = context_.coordinator.get("/v1/rebalance/watch?since=" + std::to_string(run.revision) +
                                             "&timeout_ms=" + std::to_string(wait_.next_call().count()));
      if (answer) {
        answered = *std::move(answer);
        lost_since_.reset();
        continue;
      }
      CKPT_TRYV(survive(answer.error()));
    }
  }

 private:
  void show_news(const api::Rebalance& run) {
    std::string line;
    for (const api::RebalanceMove& move : run.moves) {
      const api::PlannedMove& planned = move.planned;
      if (move.state == "moving") line += "  " + planned.name + " " + planned.from + " -> " + planned.to;
    }
    if (!line.empty() && line != shown_ && !context_.json)
      context_.err << "moving" << printable(line) << "\n" << std::flush;
    shown_ = line;
  }

  Result<void> interrupted() {
    if (lost_since_) return not_known();  // no coordinator can accept the order
    if (++interrupts_ > 1)
      return Error(ErrorCode::kAborted,
                   "Stopped following the rebalance: it ends after its open moves, which `gpumigrate "
                   "migrations` shows");
    context_.note("Interrupted: no further move begins (interrupt again to stop waiting for the open ones)");
    auto stopped = context_.coordinator.post("/v1/rebalance/stop", Json::object());
    if (stopped) return ok();
    const Error& error = stopped.error();
    if (is_contact_lost(error)) return not_known().caused_by(error);
    context_.note(error.message());
    return ok();
  }

  // Returns the error of a failed call, unless the loop can continue. The loop handles an interrupt, and
  // redials a lost coordinator.
  Result<void> survive(const Error& error) {
    if (error.code() == ErrorCode::kAborted) return ok();
    if (error.code() == ErrorCode::kNotFound)
      return Error(
          ErrorCode::kTimedOut,
          "The coordinator has restarted and forgotten the rebalance. Its open moves continue (`gpumigrate "
          "migrations`); run `gpumigrate rebalance` again for a new plan");
    if (!is_contact_lost(error)) return error;
    if (!lost_since_) {
      context_.note(error.message() + "; retrying. The open moves are not affected");
      lost_since_ = Clock::now();
    }
    if (Clock::now() - *lost_since_ >= context_.patience) return not_known().caused_by(error);
    context_.coordinator.http().pause(HttpClient::kRedialInterval);
    return ok();
  }

  static bool is_contact_lost(const Error& error) {
    return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
  }
  static Error not_known() {
    return {ErrorCode::kTimedOut,
            "The outcome of the rebalance is unknown; `gpumigrate migrations` shows its open moves. Run "
            "`gpumigrate rebalance` again for a new plan"};
  }

  Context& context_;
  const Wait& wait_;
  int interrupts_ = 0;
  std::string shown_;
  std::optional<Clock::time_point> lost_since_;
};

int rebalance(Context& context, const RebalanceOptions& options) {
  if (options.stop) {
    auto run = context.coordinator.post("/v1/rebalance/stop", Json::object());
    if (!run) return report(context, run.error());
    print_rebalance<api::Rebalance>(context, *run);
    return kDone;
  }
  auto wait = Wait::begin(context,
                          {"the end of the rebalance",
                           "the rebalance continues; `gpumigrate migrations` shows its moves, `gpumigrate "
                           "rebalance --stop` stops it after the open ones"},
                          options.timeout, WaitKind::kFollow);
  if (!wait) return report(context, wait.error());
  auto plan = context.coordinator.post(
      "/v1/rebalance", {{"apply", options.apply}, {"parallel", options.parallel}}, options.apply ? 2 : 1);
  if (!plan) {
    const int code = report_wait(context, **wait, plan.error());
    if (options.apply && code == kUnknown)
      context.note("`gpumigrate migrations` shows whether jobs are being moved");
    return code;
  }
  if (!options.apply) {
    print_rebalance<api::RebalancePlan>(context, *plan);
    return kDone;
  }
  auto done = RebalanceFollower(context, **wait).follow(*std::move(plan));
  if (done) return exit_code_of(print_rebalance<api::Rebalance>(context, *done));
  return (*wait)->is_limit(done.error()) ? report_wait(context, **wait, done.error())
                                         : report_unfollowed(context, done.error());
}

}  // namespace

void add_rebalance_commands(CommandTree& tree) {
  const auto options = std::make_shared<RebalanceOptions>();
  Command command =
      tree.add(tree.app(), "rebalance", "Move jobs onto fewer GPUs, so that whole GPUs become free",
               [options](Context& c) { return rebalance(c, *options); });
  Option dry = command.add_flag("--dry-run", options->dry_run, "Only print the plan (default)");
  Option apply = command.add_flag("--apply", options->apply,
                                  "Carry out the plan; the first failed move ends the rebalance");
  command.add_flag("--stop", options->stop, "Stop a running rebalance after its open moves")
      .excludes(dry)
      .excludes(apply);
  apply.excludes(dry);
  command.add_option("--parallel", options->parallel, "Number of moves at a time (1)").in_range(1, 64);
  add_wait_limit(command, options->timeout, "the rebalance continues").needs(apply);
  command.set_footer(
      "Exit codes of --apply: 0 done; 1 a move failed, 2 stopped (in both cases every job runs, and the "
      "table shows where); 5 refused; 6 the outcome is unknown.");
}

}  // namespace ckpt::cli
