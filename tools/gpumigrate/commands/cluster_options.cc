// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {

void add_cluster_commands(CommandTree& tree) {
  tree.begin_family("Cluster");
  const auto follow = std::make_shared<bool>(false);
  tree.add(tree.app(), "nodes", "List nodes", list_nodes);
  tree.add(tree.app(), "gpus", "List GPUs", list_gpus);
  tree.add(tree.app(), "events", "What has happened",
           [follow](Context& c) { return show_events(c, *follow); })
      .add_flag("-f,--follow", *follow, "Go on as it happens");
  tree.add(tree.app(), "version", "Versions of this program and of the coordinator", show_version);
}

}  // namespace ckpt::cli
