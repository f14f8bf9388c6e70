// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"

namespace ckpt::cli {
namespace {

// The options of commands for an existing migration.
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
  migrate.add_option("job", o->job, "Name or id of the job").required();
  migrate.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); NODE,NODE for several ranks")
      .called("PLACE");
  migrate.add_option("--rank", o->ranks, "Move only these ranks of the job, like 3 or 2,3 (all)")
      .called("RANKS");
  Option live = migrate.add_flag("--live", *live_mode, "Copy while the job runs (default)");
  migrate.add_flag("--stop-copy", o->stop_copy, "Stop the job, copy it and continue").excludes(live);
  migrate
      .add_option("--max-downtime", o->max_downtime,
                  "Limit of the pause. If you set it, a move with a longer expected pause is refused (the "
                  "default limit, 200ms, refuses no move)")
      .called("TIME");
  migrate
      .add_option("--if-not-converged", o->if_not_converged,
                  "Action if the expected pause stays over the limit: switch or abort (default: abort if "
                  "--max-downtime is set, else switch)")
      .called("WHAT")
      .one_of({"switch", "abort"});
  migrate
      .add_option("--communicators", o->communicators,
                  "When ranks create communicators: overlap (while the ranks compute) or in-pause (while all "
                  "ranks are held) (default: the job's own setting)")
      .called("WHEN")
      .one_of({"overlap", "in-pause"});
  migrate
      .add_option("--connections", o->connections,
                  "Treatment of TCP connections to other programs: refuse the move (refuse) or reset them at "
                  "the switch (reset) (default: the job's own setting)")
      .called("WHAT")
      .one_of({"refuse", "reset"});
  migrate.add_option("--bandwidth", o->bandwidth, "Limit of the transfer rate, like 10GiB/s").called("RATE");
  migrate
      .add_option("--network", o->network,
                  "Network to use; both nodes must have it (default: the source's first network that the "
                  "target also has)")
      .called("NAME");
  migrate.add_option("--max-rounds", o->max_rounds, "Maximum number of copy rounds").in_range(1, 1'000'000);
  migrate.add_option("--codec", o->codec, "Encoding of the data: auto, raw, planes or difference (auto)")
      .one_of({"auto", "raw", "planes", "difference"});
  migrate
      .add_option("--shadow-memory", o->shadow_memory,
                  "Size of the shadow memory, like 4GiB: host memory at the source for a copy of the sent "
                  "data, so that only differences are sent (0: none)")
      .called("SIZE");
  migrate
      .add_option("--slowdown", o->slowdown,
                  "Share of the GPU's time that the copy may take while the job runs, like 3%")
      .called("PERCENT");
  migrate
      .add_option("--exec", o->exec,
                  "Continue the job as this command, like a new version of its program (cooperative jobs)")
      .called("COMMAND");
  migrate
      .add_option(
          "--allow", o->allow,
          "Let --exec accept missing, new or changed tensors and host states; separate several with commas")
      .called("WHAT");
  migrate.add_option("--timeout", o->timeout, "Abort the migration after this time, like 10m").called("TIME");
  migrate.add_option("--reason", o->reason, "The reason, for the records");
  Option dry =
      migrate.add_flag("--dry-run", o->dry_run, "Show where the job would move and why; change nothing");
  migrate
      .add_flag("-v,--verbose", o->each, "In a dry run, show for each GPU why it can or cannot hold the job")
      .needs(dry);
  migrate.add_flag("--detach", o->detach,
                   "Do not wait until the migration ends. Ctrl-C during the wait aborts the migration");
  migrate.add_example("gpumigrate migrate train --to node-b", "Move a job while it runs");
  migrate.add_example("gpumigrate migrate train --dry-run",
                      "See where a job would move, and the expected pause");
  migrate.add_example("gpumigrate migrate train --to node-b:1 --max-downtime 50ms",
                      "Move a job only if its pause is short");
  migrate.add_example("gpumigrate migrate train --to node-b --exec 'python3 train_v2.py' --allow new",
                      "Continue as the next version of the program, which has new tensors");
  migrate.add_example("gpumigrate migrate train --rank 2,3 --to node-c",
                      "Move two ranks of a job; the others stay");
  migrate.set_footer(
      "Exit codes: 0 moved; 1 failed, 2 timed out or interrupted (in both cases the job keeps running at "
      "the source); 3 restored from an image; 4 the job is lost; 5 refused, nothing was changed; 6 the "
      "outcome is unknown; 64 usage error.");
}

}  // namespace

void add_migration_commands(CommandTree& tree) {
  tree.begin_family("Moves");
  add_migrate(tree);
  const auto o = std::make_shared<MigrationOptions>();
  const auto with_id = [&o](Command added) {
    added.add_option("id", o->id, "Id of the migration, or name or id of the job that moves")
        .called("MIGRATION")
        .required();
    return added;
  };
  add_list(
      tree, "migrations", "List the open and the newest migrations", migrations_list,
      {.all = "Also show older migrations",
       .node = "Only migrations from or to NODE or NODE:GPU",
       .state = "Only these states: open, done, failed, timed-out, interrupted, restored, lost, refused; "
                "separate several with commas",
       .name = "Only migrations of jobs with these names, like \"train*\""});
  const auto with_limit = [&](Command added) {
    add_wait_limit(added, o->timeout, "the migration continues");
    return added;
  };
  with_limit(with_id(tree.add(tree.app(), "watch", "Follow a migration to its end",
                              [o](Context& c) { return watch_migration(c, o->id, o->timeout); })));
  with_limit(with_id(tree.add(tree.app(), "abort", "Abort a migration; the job keeps running at its source",
                              [o](Context& c) { return abort_migration(c, o->id, o->reason, o->timeout); })))
      .add_option("--reason", o->reason, "The reason, for the records");
  Command set = with_id(tree.add(tree.app(), "set", "Change a limit of a running migration",
                                 [o](Context& c) { return set_limit(c, o->id, o->what, o->value); }));
  set.add_example("gpumigrate set m7 bandwidth 2GiB/s", "Limit the transfer rate of a running migration");
  set.add_option("limit", o->what, "The limit: max-downtime or bandwidth")
      .required()
      .one_of({"max-downtime", "bandwidth"});
  set.add_option("value", o->value, "The new value, like 200ms or 10GiB/s").required();
  with_limit(with_id(tree.add(tree.app(), "resolve",
                              "Confirm that the other side of a migration is permanently lost",
                              [o](Context& c) { return resolve_migration(c, o->id, o->at, o->timeout); })))
      .add_option("--at", o->at, "The side that runs the job: source or target")
      .called("SIDE")
      .required()
      .one_of({"source", "target"});
}

}  // namespace ckpt::cli
