// SPDX-License-Identifier: Apache-2.0
// `cluster recover`: what a coordinator whose store was lost, or is an older copy, learnt from its nodes.
#include <sstream>

#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

std::string names_of(const Json& names) {
  std::string text;
  for (const Json& name : names)
    if (name.is_string()) text += (text.empty() ? "" : ", ") + name.get<std::string>();
  return printable(text);
}

void show_undecided(std::ostringstream& out, const Json& switches) {
  for (const Json& one : switches) {
    const std::string away = names_of(member(one, "away"));
    const std::string id = printable(text_of(one, "migration"));
    out << "Migration " << id << " of " << printable(text_of(one, "job")) << " is not decided: ";
    if (away.empty())
      out << "its nodes are asked, after a full lease term their records decide\n";
    else
      out << away << " is away; `gpumigrate resolve " << id << "` is your word that it is dead\n";
  }
}

void show_resting(std::ostringstream& out, const Json& images) {
  if (images.empty()) return;
  out << "Images of jobs that are not known (`gpumigrate resume NAME`, or `gpumigrate restore IMAGE`):\n";
  Table table({"JOB", "NAME", "IMAGE"});
  for (const Json& one : images)
    table.add({text_of(one, "job"), text_of(one, "name"), text_of(one, "image")});
  out << table.text();
}

std::string view_recovery(const Json& answer) {
  std::ostringstream out;
  const Json& found = member(answer, "found");
  if (found.empty()) {
    out << "Nothing was found that this coordinator's store did not know.\n";
  } else {
    Table table({"FOUND", "NODE", "JOB", "WHAT"});
    for (const Json& one : found) {
      const std::string job = text_of(one, "job");
      table.add({text_of(one, "kind"), text_of(one, "node"), job.empty() ? "-" : job, text_of(one, "text")});
    }
    out << table.text();
  }
  show_undecided(out, member(answer, "undecided"));
  show_resting(out, member(answer, "images_of_unknown_jobs"));
  const std::string away = names_of(member(answer, "nodes_away"));
  if (!away.empty()) out << "Not heard yet: " << away << ". What runs there is not known.\n";
  if (!found.empty())
    out << "Cordons, drains, protection schedules, and what jobs printed before their last move are not "
           "known.\n";
  return out.str();
}

int recover(Context& context) {
  auto answer = context.coordinator.get("/v1/recovery");
  if (!answer) return report(context, answer.assume_error());
  if (context.json)
    context.print(answer.assume_value());
  else
    context.out << view_recovery(answer.assume_value()) << std::flush;
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
