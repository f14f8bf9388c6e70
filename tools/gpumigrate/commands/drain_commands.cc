// SPDX-License-Identifier: Apache-2.0
// The commands cordon, uncordon, drain, drains, node rm and node add.
#include <map>
#include <memory>

#include "libckpt/api/site.h"
#include "libckpt/record/document.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/drain_follower.h"
#include "tools/gpumigrate/commands/drain_views.h"
#include "tools/gpumigrate/screens/lists.h"

namespace ckpt::cli {
namespace {

struct DrainOptions {
  std::string place;
  std::string deadline;
  int parallel = 0;
  std::string fallback;
  std::string reason;
  std::string timeout;
  std::string node;   // `drains`: NODE or NODE:GPU
  std::string state;  // `drains`: states separated by commas
  std::string id;
  bool dry_run = false;
  bool detach = false;
  bool watch = false;
  bool cancel = false;
  bool each = false;  // true with -v
  bool all = false;
  bool forgive = false;  // `uncordon`: true if findings of the last minutes are forgiven, too
};

template <typename View>
int print(Context& context, const Json& value, View view) {
  if (context.json)
    context.print(value);
  else
    context.out << view(value) << std::flush;
  return kDone;
}

template <typename View>
int ask_and_print(Context& context, Result<Json> answer, View view) {
  return answer ? print(context, *answer, view) : report(context, answer.error());
}

// Turns a view of a record into a view of the JSON answer.
template <record::Described T, typename View>
auto view_of_answer(View view) {
  return [view](const Json& answer) { return view(record::from_answer<T>(answer)); };
}

// Returns the view of a drain for this command's output.
auto drain_view(const Context& context, bool each) {
  return view_of_answer<api::Drain>(
      [layout = context.layout(), each](const api::Drain& drain) { return view_drain(drain, each, layout); });
}

int follow_drain(Context& context, const std::string& id, bool each, Wait& wait) {
  auto drain = follow_to_its_end(context, id, wait);
  if (!drain && wait.is_limit(drain.error())) return report_wait(context, wait, drain.error());
  if (!drain) return report_unfollowed(context, drain.error());
  print(context, *drain, drain_view(context, each));
  return record::from_answer<api::Drain>(*drain).exit_code.value_or(kUnknown);
}

constexpr std::chrono::minutes kRemovalAnswer{3};  // the limit for the answer to a removal, because a fence
                                                   // command may take two minutes

struct RemovalOptions {
  std::string node;
  bool force = false;
  bool fenced = false;
  std::string timeout;
};

std::string view_removal(const Json& answer) {
  const auto removal = record::from_answer<api::NodeRemoval>(answer);
  std::string out = "Node " + removal.node + " is removed";
  std::string lost;
  for (const std::string& job : removal.lost) lost += (lost.empty() ? "" : ", ") + job;
  if (!lost.empty()) out += "; its lost jobs: " + lost;
  if (removal.failure) out += "; fencing it failed: " + removal.failure->problem;
  if (!lost.empty() && !removal.fenced)
    out += " (before you restore them, confirm that nothing runs there: `gpumigrate node rm " + removal.node +
           " --force --fenced`)";
  return printable(out) + "\n";
}

int remove_node(Context& context, const RemovalOptions& options) {
  auto wait = Wait::begin(
      context,
      {"node " + options.node + " to be removed", "`gpumigrate nodes` shows whether the node was removed"},
      options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto removal =
      context.coordinator.post("/v1/nodes/" + path_part(options.node) + "/remove",
                               {{"force", options.force}, {"fenced", options.fenced}}, 1, kRemovalAnswer);
  if (!removal) return report_wait(context, **wait, removal.error());
  (*wait)->clear();
  return print(context, *removal, view_removal);
}

std::string view_addition(const Json& added) {
  return printable("Node " + record::from_answer<api::NodeSubject>(added).node +
                   " may join again under its name; the coordinator accepts the jobs that run there") +
         "\n";
}

int add_node(Context& context, const RemovalOptions& options) {
  return ask_and_print(
      context, context.coordinator.post("/v1/nodes/" + path_part(options.node) + "/add", Json::object()),
      view_addition);
}

Result<Json> request_of(const DrainOptions& options) {
  Json body = {{"place", options.place}};
  if (!options.deadline.empty()) {
    auto time = tools::parse_duration_ns(options.deadline);
    if (!time) return Error(ErrorCode::kInvalidArgument, "--deadline: " + time.error().message());
    body["deadline_ms"] = (*time + 999'999) / 1'000'000;
  }
  if (options.parallel != 0) body["parallel"] = options.parallel;
  if (!options.fallback.empty()) body["fallback"] = options.fallback;
  if (!options.reason.empty()) body["reason"] = options.reason;
  if (options.dry_run) body["dry_run"] = true;
  return body;
}

// Begins the wait for the end of a drain.
Result<std::unique_ptr<Wait>> begin_following_drain(Context& context, const std::string& drain,
                                                    const std::string& timeout) {
  return Wait::begin(
      context,
      {"the end of the drain of " + drain, "the drain continues; `gpumigrate drains " + drain +
                                               " --watch` shows its progress, `gpumigrate drains " + drain +
                                               " --cancel` cancels it"},
      timeout, WaitKind::kFollow);
}

int print_drain_plan(Context& context, const Json& answer, bool each) {
  print(context, answer, view_of_answer<api::DrainPlan>([&](const api::DrainPlan& plan) {
          return view_drain_plan(plan, each, context.layout());
        }));
  return record::from_answer<api::DrainPlan>(answer).possible ? kDone : kFailed;
}

int drain(Context& context, const DrainOptions& options) {
  auto body = request_of(options);
  if (!body) return report(context, body.error());
  auto wait = begin_following_drain(context, options.place, options.timeout);
  if (!wait) return report(context, wait.error());
  auto answer = context.coordinator.post("/v1/drains", *body, 1);
  if (!answer) {
    const int code = report_wait(context, **wait, answer.error());
    if (code == kUnknown)
      context.note("`gpumigrate drains` shows whether " + options.place + " is being drained");
    return code;
  }
  if (options.dry_run) return print_drain_plan(context, *answer, options.each);
  const auto begun = record::from_answer<api::BegunDrain>(*answer);
  const std::string& id = begun.drain.id;
  if (begun.joined)
    context.note(options.place + " is being drained already: following drain " + id +
                 ", which keeps its original settings");
  if (options.detach) return print(context, *answer, drain_view(context, options.each));
  return follow_drain(context, id, options.each, **wait);
}

int cordon(Context& context, const DrainOptions& options) {
  Json body = {{"place", options.place}};
  if (!options.reason.empty()) body["reason"] = options.reason;
  return ask_and_print(
      context, context.coordinator.post("/v1/cordon", body),
      view_of_answer<api::Cordon>([](const api::Cordon& cordon) { return view_cordon(cordon) + "\n"; }));
}

int uncordon(Context& context, const DrainOptions& options) {
  Json body = {{"place", options.place}};
  if (options.forgive) body["forgive"] = true;
  return ask_and_print(context, context.coordinator.post("/v1/uncordon", body),
                       view_of_answer<api::Uncordoned>(view_uncordon));
}

int cancel(Context& context, const DrainOptions& options) {
  Json body = Json::object();
  if (!options.reason.empty()) body["reason"] = options.reason;
  return ask_and_print(context, context.coordinator.post(drain_path(options.id) + "/cancel", body),
                       drain_view(context, options.each));
}

bool is_open_drain(const Json& drain) {
  return record::from_answer<api::Drain>(drain).open;
}

AskList drains_list(const DrainOptions& options) {
  return [options](Context& context) -> Result<ListAnswer> {
    CKPT_TRYV(check_states(options.state, {"running", "empty", "incomplete", "deadline", "cancelled"}));
    CKPT_TRY(all, context.coordinator.get("/v1/drains"));
    Json drains = Json::array();
    for (const Json& entry : all) {
      const auto drain = record::from_answer<api::Drain>(entry);
      const std::string state = drain.open ? "running" : drain.result.value_or("-");
      if (is_place_wanted(drain.place, options.node) && is_state_wanted(state, options.state))
        drains.push_back(entry);
    }
    CKPT_TRYV(check_node(context, options.node, drains));
    ListAnswer answer{.list = drains};
    if (!options.all)
      answer.footer = hidden_text(hide_older(drains, is_open_drain, kOlderShown), "older drains");
    answer.view = [shown = record::list_from_answer<api::Drain>(drains)](const Layout& layout) {
      return view_drains(shown, layout);
    };
    return answer;
  };
}

// Returns the id of the drain that the user names. A place denotes its newest drain.
Result<std::string> drain_of(Context& context, const std::string& given) {
  if (has_id_form(given, 'd') && context.coordinator.get(drain_path(given))) return given;
  CKPT_TRY(drains, context.coordinator.get("/v1/drains"));
  for (const api::Drain& drain : record::list_from_answer<api::Drain>(drains)) {
    if (drain.place == given) return drain.id;
  }
  return Error(ErrorCode::kNotFound,
               "There is no drain with the id or place \"" + given + "\"; see `gpumigrate drains -a`");
}

int drains_command(Context& context, DrainOptions options) {
  if (options.id.empty()) return show_list(context, drains_list(options), options.watch);
  auto wait = begin_following_drain(context, options.id, options.timeout);
  if (!wait) return report(context, wait.error());
  auto id = drain_of(context, options.id);
  if (!id) return report_wait(context, **wait, id.error());
  options.id = *std::move(id);
  if (options.cancel) return cancel(context, options);
  // A drain that does not exist is refused at once. Only contact that is lost later is retried.
  auto known = context.coordinator.get(drain_path(options.id));
  if (known && options.watch) return follow_drain(context, options.id, options.each, **wait);
  return ask_and_print(context, std::move(known), drain_view(context, options.each));
}

using Shared = std::shared_ptr<DrainOptions>;

void add_drain(CommandTree& tree, const Shared& options) {
  Command added = tree.add(tree.app(), "drain", "Cordon a node or a GPU and move all its jobs away",
                           [options](Context& c) { return drain(c, *options); });
  added.add_option("place", options->place, "NODE or NODE:GPU").required();
  added
      .add_option("--deadline", options->deadline,
                  "Begin no move after this time, and abort open moves whose data is not verified yet (10m)")
      .called("TIME");
  added.add_option("--parallel", options->parallel, "Number of moves at a time (2)").in_range(1, 64);
  added
      .add_option("--fallback", options->fallback,
                  "Treatment of a job that cannot be moved: leave it, or restore its newest image "
                  "elsewhere (leave)")
      .called("WHAT")
      .one_of({"leave", "restore"});
  added.add_option("--reason", options->reason, "The reason, for the records");
  added.add_flag("--dry-run", options->dry_run,
                 "Show where each job would move, and which cannot; change nothing");
  added.add_flag("-v,--verbose", options->each, "Show for each GPU why it cannot hold a job");
  added.add_flag("--detach", options->detach,
                 "Do not wait until the drain ends. Ctrl-C during the wait also leaves the drain running");
  add_wait_limit(added, options->timeout, "the drain continues");
  added.add_example("gpumigrate drain node-a --dry-run", "See where each job would move");
  added.add_example("gpumigrate drain node-a --reason \"new driver\"",
                    "Move all jobs away and keep new ones out");
  added.set_footer(
      "Jobs of higher priority move first, then smaller jobs. A second drain of the same place joins the "
      "running one. Draining an empty node does nothing.\nExit codes: 0 the place is empty; 1 a job could "
      "not be moved (the table shows which and why); 2 the deadline passed, or the drain was cancelled; 3 "
      "the place is empty, but a restore lost work; 4 a job was lost; 5 refused, nothing was changed; 6 the "
      "outcome is unknown; 64 usage error.");
}

void add_removal(CommandTree& tree) {
  const auto options = std::make_shared<RemovalOptions>();
  Command node = tree.add_parent("node", "Add and remove nodes, and create their certificates and tokens");
  node.require_subcommand();
  Command rm = tree.add(node, "rm", "Remove a node from the cluster permanently",
                        [options](Context& c) { return remove_node(c, *options); });
  rm.add_option("node", options->node, "Name of the node").required();
  Option force =
      rm.add_flag("--force", options->force, "Confirm that the node and its jobs are permanently lost");
  rm.add_flag("--fenced", options->fenced,
              "Confirm that nothing runs on the node, so that its jobs may be restored from their images")
      .needs(force);
  add_wait_limit(rm, options->timeout, "the node may still be removed");
  tree.add(node, "add", "Let a removed node join again under its name",
           [options](Context& c) { return add_node(c, *options); })
      .add_option("node", options->node, "Name of the node")
      .required();
}

}  // namespace

void add_drain_commands(CommandTree& tree) {
  tree.begin_family("Cluster");
  add_removal(tree);
  const auto options = std::make_shared<DrainOptions>();
  Command close = tree.add(tree.app(), "cordon", "Keep new jobs off a node or a GPU",
                           [options](Context& c) { return cordon(c, *options); });
  close.add_option("place", options->place, "NODE or NODE:GPU").required();
  close.add_option("--reason", options->reason, "The reason, for the records");
  Command open = tree.add(tree.app(), "uncordon", "Remove the cordons of a node or a GPU, and list them",
                          [options](Context& c) { return uncordon(c, *options); });
  open.add_option("place", options->place, "NODE or NODE:GPU").required();
  open.add_flag(
      "--forgive", options->forgive,
      "Confirm that the GPU is healthy, so that findings of the last ten minutes no longer keep jobs away");
  add_drain(tree, options);
  Command drains = tree.add(tree.app(), "drains", "List drains, or show, follow or cancel one",
                            [options](Context& c) { return drains_command(c, *options); });
  Option id = drains.add_option("id", options->id, "Id of a drain, or NODE or NODE:GPU for its newest one")
                  .called("DRAIN");
  Option follow =
      drains.add_flag("-w,--watch", options->watch,
                      "Refresh the list until Ctrl-C is pressed; with DRAIN, follow that drain to its end");
  drains.add_flag("-a,--all", options->all, "Also show older drains").excludes(id);
  drains.add_option("--node", options->node, "Only drains of NODE and its GPUs, or of NODE:GPU").excludes(id);
  drains
      .add_option(
          "--state", options->state,
          "Only these states: running, empty, incomplete, deadline, cancelled; separate several with commas")
      .excludes(id);
  drains.add_flag("-v,--verbose", options->each, "Show for each GPU why it cannot hold a job").needs(id);
  Option cancel = drains.add_flag("--cancel", options->cancel,
                                  "Begin no further move. Open moves continue, and the cordon stays");
  cancel.needs(id).excludes(follow);
  drains.add_option("--reason", options->reason, "The reason for the cancellation, for the records")
      .needs(cancel);
  add_wait_limit(drains, options->timeout, "the drain continues").needs(follow).needs(id);
}

}  // namespace ckpt::cli
