// SPDX-License-Identifier: Apache-2.0
// cordon, uncordon, drain, drains, node rm, node add.
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
  std::string node;   // of `drains`
  std::string state;  // of `drains`
  std::string id;
  bool dry_run = false;
  bool detach = false;
  bool watch = false;
  bool cancel = false;
  bool each = false;  // -v
  bool all = false;
  bool forgive = false;  // `uncordon`: findings of the last minutes, too
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

// A record's view as one of the answer that it stands in.
template <record::Described T, typename View>
auto view_of_answer(View view) {
  return [view](const Json& answer) { return view(record::from_answer<T>(answer)); };
}

// How a drain is shown.
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

constexpr std::chrono::minutes kRemovalAnswer{3};  // a fence command may take two

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
  if (!lost.empty()) out += "; lost with it: " + lost;
  if (removal.failure) out += "; it is not fenced: " + removal.failure->problem;
  if (!lost.empty() && !removal.fenced)
    out += " (`restore` of them wants your word that nothing runs there: node rm --force --fenced)";
  return printable(out) + "\n";
}

int remove_node(Context& context, const RemovalOptions& options) {
  auto wait = Wait::begin(
      context, {"node " + options.node + " to be removed", "`gpumigrate nodes` shows whether it was"},
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
                   " may come back under its name; what runs there is taken in when it does") +
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

// Begins to wait for the end of a drain that is followed.
Result<std::unique_ptr<Wait>> begin_following_drain(Context& context, const std::string& drain,
                                                    const std::string& timeout) {
  return Wait::begin(context,
                     {"the end of the drain of " + drain, "it goes on; `gpumigrate drains " + drain +
                                                              " --watch` shows it, `gpumigrate drains " +
                                                              drain + " --cancel` ends it"},
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
    context.note(options.place + " is being drained already: following " + id + " with its own settings");
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

// The id of the drain that is meant: a place means its newest one.
Result<std::string> drain_of(Context& context, const std::string& given) {
  if (has_id_form(given, 'd') && context.coordinator.get(drain_path(given))) return given;
  CKPT_TRY(drains, context.coordinator.get("/v1/drains"));
  for (const api::Drain& drain : record::list_from_answer<api::Drain>(drains)) {
    if (drain.place == given) return drain.id;
  }
  return Error(ErrorCode::kNotFound, "There is no drain of \"" + given + "\"");
}

int drains_command(Context& context, DrainOptions options) {
  if (options.id.empty()) return show_list(context, drains_list(options), options.watch);
  auto wait = begin_following_drain(context, options.id, options.timeout);
  if (!wait) return report(context, wait.error());
  auto id = drain_of(context, options.id);
  if (!id) return report_wait(context, **wait, id.error());
  options.id = *std::move(id);
  if (options.cancel) return cancel(context, options);
  // Refused at once if there is no such drain; only contact that is lost later is sat out.
  auto known = context.coordinator.get(drain_path(options.id));
  if (known && options.watch) return follow_drain(context, options.id, options.each, **wait);
  return ask_and_print(context, std::move(known), drain_view(context, options.each));
}

using Shared = std::shared_ptr<DrainOptions>;

void add_drain(CommandTree& tree, const Shared& options) {
  Command added = tree.add(tree.app(), "drain", "Cordon a node or a GPU and move every job away",
                           [options](Context& c) { return drain(c, *options); });
  added.add_option("place", options->place, "NODE or NODE:GPU").required();
  added
      .add_option("--deadline", options->deadline,
                  "Begin nothing after this time, and end what has not verified (10m)")
      .called("TIME");
  added.add_option("--parallel", options->parallel, "Moves out of the node at a time (2)").in_range(1, 64);
  added
      .add_option("--fallback", options->fallback,
                  "For a job that cannot be moved: leave it, or restore its newest image "
                  "elsewhere (leave)")
      .called("WHAT")
      .one_of({"leave", "restore"});
  added.add_option("--reason", options->reason, "For the records");
  added.add_flag("--dry-run", options->dry_run, "Say what would go where, and what could not; touch nothing");
  added.add_flag("-v,--verbose", options->each, "Where no GPU takes a job: the reason of each GPU");
  added.add_flag("--detach", options->detach,
                 "Do not wait; Ctrl-C of a drain in the foreground leaves it running, too");
  add_wait_limit(added, options->timeout, "the drain goes on");
  added.add_example("gpumigrate drain node-a --dry-run", "See what would go where");
  added.add_example("gpumigrate drain node-a --reason \"new driver\"", "Move every job away, let none come");
  added.set_footer(
      "Higher priorities go first, then smaller jobs. Run again it joins the one that runs, and does nothing "
      "on an "
      "empty node.\n"
      "Exit codes: 0 empty; 1 something could not be moved (the table shows what and why); 2 deadline or "
      "cancelled; 3 empty,\n"
      "but work was lost by a restore; 4 a job was lost; 5 refused, nothing touched; 6 outcome not known; 64 "
      "usage.");
}

void add_removal(CommandTree& tree) {
  const auto options = std::make_shared<RemovalOptions>();
  Command node = tree.add_parent("node", "Nodes of the cluster");
  node.require_subcommand();
  Command rm = tree.add(node, "rm", "Take a node out of the cluster for good",
                        [options](Context& c) { return remove_node(c, *options); });
  rm.add_option("node", options->node, "Its name").required();
  Option force = rm.add_flag("--force", options->force, "It is lost for good, and its jobs with it");
  rm.add_flag("--fenced", options->fenced,
              "Nothing runs there any more: its jobs may go on from their images")
      .needs(force);
  add_wait_limit(rm, options->timeout, "it may still be removed");
  tree.add(node, "add", "Let a node that was removed come back under its name",
           [options](Context& c) { return add_node(c, *options); })
      .add_option("node", options->node, "Its name")
      .required();
}

}  // namespace

void add_drain_commands(CommandTree& tree) {
  tree.begin_family("Cluster");
  add_removal(tree);
  const auto options = std::make_shared<DrainOptions>();
  Command close = tree.add(tree.app(), "cordon", "Let no new job come to a node or a GPU",
                           [options](Context& c) { return cordon(c, *options); });
  close.add_option("place", options->place, "NODE or NODE:GPU").required();
  close.add_option("--reason", options->reason, "For the records");
  Command open = tree.add(tree.app(), "uncordon", "Let jobs come again; lists the cordons that it removed",
                          [options](Context& c) { return uncordon(c, *options); });
  open.add_option("place", options->place, "NODE or NODE:GPU").required();
  open.add_flag(
      "--forgive", options->forgive,
      "Also where a finding of the last ten minutes keeps jobs away: your word that the GPU is sound");
  add_drain(tree, options);
  Command drains = tree.add(tree.app(), "drains", "List drains; with an id show, follow or cancel one",
                            [options](Context& c) { return drains_command(c, *options); });
  Option id = drains.add_option("id", options->id, "Id of a drain, or its NODE or NODE:GPU: its newest one")
                  .called("DRAIN");
  Option follow = drains.add_flag("-w,--watch", options->watch,
                                  "Show them until Ctrl-C; with an id follow it to its end");
  drains.add_flag("-a,--all", options->all, "Also older ones").excludes(id);
  drains.add_option("--node", options->node, "Only those of NODE and its GPUs, or of NODE:GPU").excludes(id);
  drains
      .add_option("--state", options->state,
                  "running, empty, incomplete, deadline or cancelled; several: a,b")
      .excludes(id);
  drains.add_flag("-v,--verbose", options->each, "Where no GPU takes a job: the reason of each GPU")
      .needs(id);
  Option cancel = drains.add_flag("--cancel", options->cancel,
                                  "Move nothing further; what moves goes on, the cordon stays");
  cancel.needs(id).excludes(follow);
  drains.add_option("--reason", options->reason, "Why it is cancelled, for the records").needs(cancel);
  add_wait_limit(drains, options->timeout, "the drain goes on").needs(follow).needs(id);
}

}  // namespace ckpt::cli
