// SPDX-License-Identifier: Apache-2.0
// `cluster recover`: what a coordinator whose store was lost, or is an older copy, learnt from its nodes.
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

int recover(Context& context) {
  auto answer = context.coordinator.get("/v1/recovery");
  if (!answer) return report(context, answer.assume_error());
  if (context.json)
    context.print(answer.assume_value());
  else
    context.out << view_recovery(answer.assume_value(), context.layout()) << std::flush;
  return kDone;
}

}  // namespace

void add_recovery_commands(CommandTree& tree) {
  Command cluster = tree.add_parent("cluster", "The cluster as a whole");
  cluster.require_subcommand();
  tree.add(cluster, "recover", "Show what a coordinator that lost its store learnt from its nodes",
           [](Context& c) { return recover(c); });
}

}  // namespace ckpt::cli
