// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/program.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "libckpt/command_line/command_line.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/policy_test.h"
#include "tools/gpumigrate/commands/rebalance_commands.h"
#include "tools/gpumigrate/doctor.h"
#include "tools/gpumigrate/local/cluster.h"

namespace ckpt::cli {
namespace {

// Options of all commands live as long as the parser.
struct Options {
  std::string form = "table";
  LocalOptions local;
  RunOptions run;
  AdoptOptions adopt;
  MigrateOptions migrate;
  bool live = false;
  std::string agent_config;
  std::string id;
  std::string reason;
  std::string what;
  std::string value;
  std::string at;
  std::string time;
  bool follow = false;
};

class Parser {
 public:
  Parser()
      : tree_("Moves running GPU jobs from one GPU to another. `gpumigrate COMMAND --help` tells more.",
              "gpumigrate"),
        app_(tree_.app()) {
    app_.require_subcommand();
    app_.pass_unknown_options_up();
    app_.add_option("-o,--output", options_.form, "table or json").one_of({"table", "json"});
    add_local();
    add_jobs();
    add_migrate();
    add_migrations();
    add_image_commands(tree_);
    add_cluster();
    add_policy_test(tree_);
    add_rebalance_commands(tree_);
    add_drain_commands(tree_);
    add_recovery_commands(tree_);
    add_policy_commands(tree_);
    add_backup_commands(tree_);
  }

  // 0 and an action, or the exit code after having said why.
  int parse(std::vector<std::string> arguments, std::ostream& out, std::ostream& err) {
    const auto separator = std::find(arguments.begin(), arguments.end(), "--");
    if (separator != arguments.end()) {
      options_.run.command.assign(separator + 1, arguments.end());
      arguments.erase(separator, arguments.end());
    }
    if (const auto end = app_.parse(std::move(arguments))) {
      if (!end->is_mistake()) return end->print(out, out);
      const bool program = is_run() && end->surplus;
      err << "gpumigrate: " << end->message
          << (program ? "; name the program after --\n" : " (see gpumigrate --help)\n");
      return kUsage;
    }
    if (!options_.run.command.empty() && !is_run()) {
      err << "gpumigrate: only `run` takes a program after --\n";
      return kUsage;
    }
    return kDone;
  }
  [[nodiscard]] const Action& action() const { return tree_.chosen(); }
  // Whether `run` was given.
  [[nodiscard]] bool is_run() {
    const auto run = app_.find_subcommand("run");
    return run && run->is_given();
  }
  [[nodiscard]] bool json() const { return options_.form == "json"; }

 private:
  Command command(Command& parent, const char* name, const char* help, Action action) {
    return tree_.add(parent, name, help, std::move(action));
  }
  void add_local();
  void add_jobs();
  void add_run();
  void add_adopt();
  void add_migrate();
  void add_migrations();
  void add_cluster();

  CommandTree tree_;
  CommandLine& app_;
  Options options_;
};

void Parser::add_local() {
  Command local = app_.add_subcommand("local", "A cluster on this machine, under GPUMIGRATE_HOME");
  local.require_subcommand();
  Command up = command(local, "up", "Start a coordinator and agents",
                       [this](Context& c) { return local_up(c, options_.local); });
  up.add_option("--nodes", options_.local.nodes, "Nodes (2)");
  up.add_option("--gpus", options_.local.gpus, "GPUs of each node (1)");
  up.add_option("--gpu-memory", options_.local.gpu_memory, "Memory of each software GPU (8GiB)");
  command(local, "down", "Stop jobs, agents and coordinator", local_down);
  command(local, "status", "What runs", local_status);
}

void Parser::add_run() {
  Command run = command(app_, "run", "Start a job: gpumigrate run [OPTIONS] -- PROGRAM ARGUMENTS...",
                        [this](Context& c) { return run_job(c, options_.run); });
  run.add_option("--name", options_.run.name, "Name of the job");
  run.add_option("--node", options_.run.node, "NODE or NODE:GPU; otherwise it is chosen");
  run.add_option("--gpus", options_.run.gpus, "GPUs (1; more: not yet)").in_range(1, 1024);
  run.add_option("--gpu-memory", options_.run.gpu_memory, "GPU memory to keep free for it, like 12GiB");
  run.add_option("--env", options_.run.env, "NAME=VALUE, may be repeated").one_value_each();
  run.add_option("--cwd", options_.run.cwd, "Folder to start in (this one)");
  run.add_option("--priority", options_.run.priority, "The higher, the later it is disturbed (0)")
      .in_range(-1000, 1000);
  run.add_flag(
      "--cooperative", options_.run.cooperative,
      "The program uses ckpt.h; without it any CUDA program is made movable by a library that is preloaded");
  run.add_flag("--preempt", options_.run.preempt,
               "Jobs of lower priority may be parked for it; they come back when there is room");
  run.add_flag("--detach", options_.run.detach, "Do not follow its output");
  run.add_flag("--dry-run", options_.run.dry_run, "Say where it would start and why; start nothing");
  run.set_footer(
      "Without --detach the job's output is shown and its exit code returned (125 if gpumigrate failed); "
      "Ctrl-C stops the job.\n"
      "It gets your environment but for what chooses libraries and GPUs (LD_LIBRARY_PATH, "
      "CUDA_VISIBLE_DEVICES, ...): these are its node's.");
}

void Parser::add_adopt() {
  Command adopt = command(app_, "adopt", "Take in a CUDA process that was not started by gpumigrate",
                          [this](Context& c) { return adopt_process(c, options_.adopt); });
  adopt.add_option("pid", options_.adopt.pid, "Its process id").required().in_range(2, 1 << 30);
  adopt.add_option("--name", options_.adopt.name, "Name of the job");
  adopt.add_option("--node", options_.adopt.node,
                   "Where it runs; otherwise it is looked for on this machine");
  adopt.set_footer(
      "It runs on as before. It has none of our libraries in it, so `migrate` stops it for the whole copy: "
      "the driver saves its "
      "device memory, CRIU the rest (needs root). What `gpumigrate run` starts is copied while it runs.");
}

void Parser::add_jobs() {
  add_run();
  add_adopt();
  command(app_, "jobs", "List jobs", list_jobs);
  command(app_, "describe", "All about a job", [this](Context& c) { return describe_job(c, options_.id); })
      .add_option("job", options_.id, "Name or id")
      .required();
  Command logs = command(app_, "logs", "A job's output, over all its moves",
                         [this](Context& c) { return show_logs(c, options_.id, options_.follow); });
  logs.add_option("job", options_.id, "Name or id").required();
  logs.add_flag("-f,--follow", options_.follow, "Until the job ends");
  Command stop = command(app_, "stop", "Stop a job",
                         [this](Context& c) { return stop_job(c, options_.id, options_.time); });
  stop.add_option("job", options_.id, "Name or id").required();
  stop.add_option("--grace", options_.time, "Between SIGTERM and SIGKILL (10s)");
  Command wait = command(app_, "wait", "Wait for a job's end and return its exit code",
                         [this](Context& c) { return wait_for_job(c, options_.id, options_.time); });
  wait.add_option("job", options_.id, "Name or id").required();
  wait.add_option("--timeout", options_.time, "Give up after this time (exit code 2)");
}

void Parser::add_migrate() {
  MigrateOptions& options = options_.migrate;
  Command migrate = command(app_, "migrate", "Move a running job to another GPU",
                            [this](Context& c) { return migrate_job(c, options_.migrate); });
  migrate.add_option("job", options.job, "Name or id").required();
  migrate.add_option("--to", options.to, "NODE, NODE:GPU or auto (auto)");
  Option live = migrate.add_flag("--live", options_.live, "Copy while the job runs (default)");
  migrate.add_flag("--stop-copy", options.stop_copy, "Stop the job, copy, go on").excludes(live);
  migrate.add_option("--max-downtime", options.max_downtime,
                     "Switch once the estimate is within it, like 200ms");
  migrate.add_option("--if-not-converged", options.if_not_converged, "switch or abort")
      .one_of({"switch", "abort"});
  migrate.add_option("--bandwidth", options.bandwidth, "Limit, like 10GiB/s");
  migrate.add_option("--max-rounds", options.max_rounds, "Rounds of copying at most").in_range(1, 1'000'000);
  migrate.add_option("--codec", options.codec, "auto, raw, planes or difference (auto)")
      .one_of({"auto", "raw", "planes", "difference"});
  migrate.add_option("--shadow-memory", options.shadow_memory,
                     "Host memory at the source for what was sent last, like 4GiB: differences are sent (0)");
  migrate.add_option("--slowdown", options.slowdown,
                     "Share of the GPU's time that copying may take while the job runs, like 3%");
  migrate.add_option("--timeout", options.timeout, "Abort after this time, like 10m");
  migrate.add_option("--reason", options.reason, "For the records");
  migrate.add_flag("--dry-run", options.dry_run, "Say where it would go and why; touch nothing");
  migrate.add_flag("--detach", options.detach,
                   "Do not wait; Ctrl-C of a migration in the foreground aborts it");
  migrate.set_footer(
      "Exit codes: 0 moved; 1 failed, 2 timed out or interrupted: the job runs on at the source; 3 restored "
      "from an image;\n"
      "4 the job is lost; 5 refused, nothing touched; 6 outcome not known; 64 usage.");
}

void Parser::add_migrations() {
  const auto with_id = [this](Command added) {
    added.add_option("id", options_.id, "Id of the migration").required();
    return added;
  };
  command(app_, "migrations", "List migrations", list_migrations);
  with_id(command(app_, "watch", "Follow a migration",
                  [this](Context& c) { return watch_migration(c, options_.id); }));
  with_id(command(app_, "abort", "Abort a migration; the job runs on where it was", [this](Context& c) {
    return abort_migration(c, options_.id, options_.reason);
  })).add_option("--reason", options_.reason, "For the records");
  Command set = with_id(command(app_, "set", "Change a limit of a running migration", [this](Context& c) {
    return set_limit(c, options_.id, options_.what, options_.value);
  }));
  set.add_option("limit", options_.what, "max-downtime or bandwidth")
      .required()
      .one_of({"max-downtime", "bandwidth"});
  set.add_option("value", options_.value, "Like 200ms or 10GiB/s").required();
  with_id(command(app_, "resolve", "Your word that the other side of a migration is dead for good",
                  [this](Context& c) { return resolve_migration(c, options_.id, options_.at); }))
      .add_option("--at", options_.at, "Where the job shall run: source or target")
      .required()
      .one_of({"source", "target"});
}

void Parser::add_cluster() {
  command(app_, "nodes", "List nodes", list_nodes);
  command(app_, "gpus", "List GPUs", list_gpus);
  command(app_, "events", "What has happened", [this](Context& c) {
    return show_events(c, options_.follow);
  }).add_flag("-f,--follow", options_.follow, "Go on as it happens");
  command(app_, "doctor", "What this machine can do, and what is missing for the rest",
          [this](Context& c) { return doctor(c, options_.agent_config); })
      .add_option("--agent-config", options_.agent_config,
                  "The settings (agent.toml) of a node's agent, which goes by what is found");
  command(app_, "version", "Versions of this program and of the coordinator", show_version);
}

}  // namespace

std::string default_home() {
  const char* home = std::getenv("GPUMIGRATE_HOME");
  if (home != nullptr && *home != '\0') return std::filesystem::absolute(home).lexically_normal();
  const char* user = std::getenv("HOME");
  return std::string(user == nullptr ? "/root" : user) + "/.local/share/gpumigrate";
}

int run_program(const std::vector<std::string>& arguments, Context& context) {
  Parser parser;
  const int parsed = parser.parse(arguments, context.out, context.err);
  if (parsed != kDone || !parser.action()) return parsed;
  context.json = parser.json();
  try {
    return parser.action()(context);
  } catch (const std::exception& error) {
    // What a library throws on an answer of another form than docs/api.md gives.
    context.note(std::string("unexpected answer of the coordinator: ") + error.what());
    return kUnknown;
  }
}

}  // namespace ckpt::cli
