// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/job_doctor.h"

#include <algorithm>
#include <vector>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/exit_codes.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

// Splits "cannot move: one; another" at each "; ". A reason without a list is one obstacle.
std::vector<std::string> obstacles_in(const std::string& reason) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < reason.size();) {
    const std::size_t end = std::min(reason.find("; ", at), reason.size());
    found.push_back(printable(std::string_view(reason).substr(at, end - at)));
    at = end + 2;
  }
  return found;
}

// A row of the table: a kind of move, or a move to a queried node.
struct MoveRow {
  std::string what;
  const api::Movability* movability;
};

// Returns the obstacles of the row, each on its own line. The result is empty if there are none.
std::string reason_of(const MoveRow& row, const Layout& layout) {
  if (!row.movability->reason) return {};
  std::string text = "\n" + paragraph("To " + row.what + ":", layout);
  for (const std::string& obstacle : obstacles_in(*row.movability->reason))
    text += paragraph("- " + obstacle, layout);
  return text;
}

}  // namespace

std::string view_obstacles(const api::Obstacles& found, const Layout& layout) {
  const MoveRow within{"move to another GPU of its node", &found.within_node};
  const MoveRow between{"move to another node", &found.between_nodes.movability};
  std::vector<MoveRow> rows{within, between};
  for (const api::TargetMovability& target : found.between_nodes.targets)
    rows.push_back({"move to " + target.node, &target.movability});
  Table table({{"CAN"}, {"WHAT"}});
  for (const MoveRow& row : rows) {
    const bool can = row.movability->possible;
    table.add({Cell(can ? "yes" : "no", can ? Tone::kGood : Tone::kBad), row.what});
  }
  std::string text = paragraph("job " + found.name + " (" + found.job + ") at " + found.at, layout) + "\n" +
                     table.text(layout);
  // The obstacles of each queried node are listed below.
  const bool is_listed_below = !found.between_nodes.targets.empty();
  for (const MoveRow& row : rows)
    if (!is_listed_below || row.movability != between.movability) text += reason_of(row, layout);
  return text;
}

int doctor_of_job(Context& context, const std::string& job) {
  const Result<Json> answer = context.coordinator.get("/v1/jobs/" + path_part(job) + "/obstacles");
  if (!answer) return report(context, answer.error());
  if (context.json) {
    context.print(*answer);
  } else {
    context.out << view_obstacles(record::from_answer<api::Obstacles>(*answer), context.layout())
                << std::flush;
  }
  return kDone;
}

}  // namespace ckpt::cli
