// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {

void add_cluster_commands(CommandTree& tree) {
  tree.begin_family("Cluster");
  const auto events = std::make_shared<EventOptions>();
  tree.add(tree.app(), "nodes", "List nodes", list_nodes);
  tree.add(tree.app(), "gpus", "List GPUs", list_gpus);
  Command list = tree.add(tree.app(), "events", "What has happened",
                          [events](Context& c) { return show_events(c, *events); });
  list.add_flag("-f,--follow", events->follow, "Go on as it happens");
  list.add_option("--since", events->since, "From a time on, like 10m (ago) or 2026-11-24T03:34:31Z")
      .called("TIME");
  list.add_option("--job", events->job, "Only of this job, by name or id").called("JOB");
  list.add_option("--type", events->types, "Only of this type, like job-ended; may be repeated")
      .called("TYPE")
      .one_value_each();
  tree.add(tree.app(), "version", "Versions of this program and of the coordinator", show_version);
}

}  // namespace ckpt::cli
