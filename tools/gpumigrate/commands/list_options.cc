// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/list_options.h"

#include <memory>

namespace ckpt::cli {

Command add_list(CommandTree& tree, const std::string& command, const std::string& help,
                 AskList (*list)(const ListOptions&), const ListHelp& options) {
  const auto o = std::make_shared<ListOptions>();
  Command added =
      tree.add(tree.app(), command, help, [o, list](Context& c) { return show_list(c, list(*o), o->watch); });
  added.add_flag("-w,--watch", o->watch, "Refresh the list until Ctrl-C is pressed");
  if (!options.all.empty()) added.add_flag("-a,--all", o->all, options.all);
  if (!options.node.empty()) added.add_option("--node", o->node, options.node);
  if (!options.state.empty()) added.add_option("--state", o->state, options.state);
  if (!options.name.empty()) added.add_option("--name", o->name, options.name);
  return added;
}

}  // namespace ckpt::cli
