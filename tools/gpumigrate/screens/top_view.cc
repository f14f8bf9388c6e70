// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/top_view.h"

#include <map>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

std::string node_of(const std::string& place) {
  return place.substr(0, place.find(':'));
}

// Shows the sum of the rates of all open moves between each pair of nodes.
std::string view_links(const std::vector<api::Migration>& open, const Layout& layout) {
  std::map<std::pair<std::string, std::string>, std::pair<int, double>> links;
  for (const api::Migration& migration : open) {
    auto& [moves, rate] = links[{node_of(migration.from), node_of(migration.to)}];
    moves++;
    if (migration.progress)
      rate += static_cast<double>(migration.progress->wire_bytes_per_second.value_or(0));
  }
  Table table(
      {{"LINK", {.min_width = 12}}, {"MOVES", {.rank = 1, .right = true}}, {"WIRE", {.right = true}}});
  for (const auto& [nodes, load] : links)
    table.add({nodes.first == nodes.second ? nodes.first + " (within)" : nodes.first + " > " + nodes.second,
               std::to_string(load.first), load.second > 0 ? short_rate(load.second) : "-"});
  return table.text(layout);
}

std::string view_moves(const std::vector<api::Migration>& open, Progress& progress, const Layout& layout) {
  std::string out = "MOVES\n";
  for (const api::Migration& migration : open) out += progress.line(migration, layout.width) + "\n";
  return out;
}

}  // namespace

std::string view_top(const ClusterNow& cluster, Progress& progress, const Layout& layout) {
  auto live = record::list_from_answer<api::Job>(cluster.jobs);
  std::erase_if(live, has_ended);
  std::vector<api::Migration> open;
  std::map<std::string, std::string> moves;
  for (api::Migration& migration : migrations_in(cluster.migrations)) {
    if (!migration.open) continue;
    const int percent = progress.percent(migration);
    if (percent >= 0) moves[migration.job] = "moving " + std::to_string(percent) + "%";
    open.push_back(std::move(migration));
  }
  const std::string head = "gpumigrate: " + std::to_string(live.size()) + " live jobs, " +
                           std::to_string(cluster.gpus.size()) + " GPUs, " + std::to_string(open.size()) +
                           " moves";
  std::string out = shortened(head, layout.width) + "\n\n";
  if (!open.empty()) out += view_moves(open, progress, layout) + "\n" + view_links(open, layout) + "\n";
  out += view_gpus(record::list_from_answer<api::Gpu>(cluster.gpus), layout) + "\n";
  return out + view_jobs(live, layout, [&moves](const std::string& job) {
           const auto move = moves.find(job);
           return move == moves.end() ? std::string() : move->second;
         });
}

}  // namespace ckpt::cli
