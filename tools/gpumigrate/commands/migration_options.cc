// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"

namespace ckpt::cli {
namespace {

// The options of commands about an existing migration.
struct MigrationOptions {
  std::string id;
  std::string reason;
  std::string what;
  std::string value;
  std::string at;
  std::string timeout;
};

void add_migrate(CommandTree& tree) {
  const auto o = std::make_shared<MigrateOptions>();
  const auto live_mode = std::make_shared<bool>(false);
  Command migrate = tree.add(tree.app(), "migrate", "Move a running job to another GPU",
                             [o, live_mode](Context& c) { return migrate_job(c, *o); });
  migrate.add_option("job", o->job, "Name or id").required();
  migrate.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); of several ranks NODE,NODE")
      .called("PLACE");
  migrate.add_option("--rank", o->ranks, "Only these ranks of a job of several, like 3 or 2,3 (all)")
      .called("RANKS");
  Option live = migrate.add_flag("--live", *live_mode, "Copy while the job runs (default)");
  migrate.add_flag("--stop-copy", o->stop_copy, "Stop the job, copy, go on").excludes(live);
  migrate
      .add_option("--max-downtime", o->max_downtime,
                  "Limit of the pause; one that is given binds: a move whose forecast is longer is refused "
                  "(200ms, which does not bind)")
      .called("TIME");
  migrate
      .add_option("--if-not-converged", o->if_not_converged,
                  "Where the forecast stays over the limit: switch or abort (abort with --max-downtime)")
      .called("WHAT")
      .one_of({"switch", "abort"});
  migrate
      .add_option(
          "--communicators", o->communicators,
          "When ranks make them: overlap (while they compute) or in-pause (while all are held); else as the "
          "job was started with")
      .called("WHEN")
      .one_of({"overlap", "in-pause"});
  migrate.add_option("--bandwidth", o->bandwidth, "Limit, like 10GiB/s").called("RATE");
  migrate
      .add_option("--network", o->network,
                  "Over this network of both nodes (the first of the source's that the target has)")
      .called("NAME");
  migrate.add_option("--max-rounds", o->max_rounds, "Rounds of copying at most").in_range(1, 1'000'000);
  migrate.add_option("--codec", o->codec, "auto, raw, planes or difference (auto)")
      .one_of({"auto", "raw", "planes", "difference"});
  migrate
      .add_option("--shadow-memory", o->shadow_memory,
                  "Host memory at the source for what was sent last, like 4GiB: differences are sent (0)")
      .called("SIZE");
  migrate
      .add_option("--slowdown", o->slowdown,
                  "Share of the GPU's time that copying may take while the job runs, like 3%")
      .called("PERCENT");
  migrate
      .add_option("--exec", o->exec,
                  "The job goes on as this command, like a new version of its program (cooperative jobs)")
      .called("COMMAND");
  migrate
      .add_option("--allow", o->allow,
                  "With --exec: missing, new or changed tensors and host states; several: a,b")
      .called("WHAT");
  migrate.add_option("--timeout", o->timeout, "Abort after this time, like 10m").called("TIME");
  migrate.add_option("--reason", o->reason, "For the records");
  Option dry = migrate.add_flag("--dry-run", o->dry_run, "Say where it would go and why; touch nothing");
  migrate.add_flag("-v,--verbose", o->each, "With --dry-run: the reasons of each GPU").needs(dry);
  migrate.add_flag("--detach", o->detach, "Do not wait; Ctrl-C of a migration in the foreground aborts it");
  migrate.add_example("gpumigrate migrate train --to node-b", "Move a job while it runs");
  migrate.add_example("gpumigrate migrate train --dry-run", "See where it would go, and the expected pause");
  migrate.add_example("gpumigrate migrate train --to node-b:1 --max-downtime 50ms",
                      "Move it only if the pause is short");
  migrate.add_example("gpumigrate migrate train --to node-b --exec 'python3 train_v2.py' --allow new",
                      "Go on as the next version of the program, which has further tensors");
  migrate.add_example("gpumigrate migrate train --rank 2,3 --to node-c",
                      "Move two ranks of a job; the others stay");
  migrate.set_footer(
      "Exit codes: 0 moved; 1 failed, 2 timed out or interrupted: the job runs on at the source; 3 restored "
      "from an image;\n"
      "4 the job is lost; 5 refused, nothing touched; 6 outcome not known; 64 usage.");
}

}  // namespace

void add_migration_commands(CommandTree& tree) {
  tree.begin_family("Moves");
  add_migrate(tree);
  const auto o = std::make_shared<MigrationOptions>();
  const auto with_id = [&o](Command added) {
    added.add_option("id", o->id, "Id of the migration, or name or id of the job that is being moved")
        .called("MIGRATION")
        .required();
    return added;
  };
  add_list(tree, "migrations", "List migrations: the open ones and the newest others", migrations_list,
           {.all = "Also older ones",
            .node = "Only from or to NODE, or NODE:GPU",
            .state = "open, done, failed, timed-out, interrupted, restored, lost or refused; several: a,b",
            .name = "Only of these jobs, like \"train*\""});
  const auto with_limit = [&](Command added) {
    add_wait_limit(added, o->timeout, "the migration goes on");
    return added;
  };
  with_limit(with_id(tree.add(tree.app(), "watch", "Follow a migration",
                              [o](Context& c) { return watch_migration(c, o->id, o->timeout); })));
  with_limit(with_id(tree.add(tree.app(), "abort", "Abort a migration; the job runs on where it was",
                              [o](Context& c) { return abort_migration(c, o->id, o->reason, o->timeout); })))
      .add_option("--reason", o->reason, "For the records");
  Command set = with_id(tree.add(tree.app(), "set", "Change a limit of a running migration",
                                 [o](Context& c) { return set_limit(c, o->id, o->what, o->value); }));
  set.add_example("gpumigrate set m7 bandwidth 2GiB/s", "Limit a move that is under way");
  set.add_option("limit", o->what, "max-downtime or bandwidth")
      .required()
      .one_of({"max-downtime", "bandwidth"});
  set.add_option("value", o->value, "Like 200ms or 10GiB/s").required();
  with_limit(
      with_id(tree.add(tree.app(), "resolve", "Your word that the other side of a migration is dead for good",
                       [o](Context& c) { return resolve_migration(c, o->id, o->at, o->timeout); })))
      .add_option("--at", o->at, "Where the job shall run: source or target")
      .called("SIDE")
      .required()
      .one_of({"source", "target"});
}

}  // namespace ckpt::cli
