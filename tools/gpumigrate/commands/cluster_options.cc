// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"
#include "tools/gpumigrate/screens/top.h"

namespace ckpt::cli {

void add_cluster_commands(CommandTree& tree) {
  tree.begin_family("Cluster");
  add_list(tree, "nodes", "List nodes", nodes_list,
           {.state = "Only nodes in this state: ready or unreachable",
            .name = "Only nodes with these names, like \"node-*\""});
  add_list(tree, "gpus", "List GPUs", gpus_list, {.node = "Only the GPUs of NODE, or only NODE:GPU"});
  tree.add(tree.app(), "top", "Show moves, links, GPUs and jobs until q or Ctrl-C is pressed", show_top);
  const auto events = std::make_shared<EventOptions>();
  Command list = tree.add(tree.app(), "events", "Show the cluster's events",
                          [events](Context& c) { return show_events(c, *events); });
  list.add_flag("-f,--follow", events->follow, "Show new events as they happen");
  list.add_option("--since", events->since,
                  "Only events since a time, like 10m (ago) or 2026-11-24T03:34:31Z")
      .called("TIME");
  list.add_option("--job", events->job, "Only events of this job (name or id)").called("JOB");
  list.add_option("--type", events->types, "Only events of this type, like job-ended; may be repeated")
      .called("TYPE")
      .one_value_each();
  tree.add(tree.app(), "version", "Show the versions of this program and of the coordinator", show_version);
}

}  // namespace ckpt::cli
