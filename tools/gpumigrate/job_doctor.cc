// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/job_doctor.h"

#include <algorithm>
#include <vector>

#include "tools/gpumigrate/client/exit_codes.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

// "What is refused: one; another" -> those; a reason without a list is one.
std::vector<std::string> obstacles_in(const std::string& reason) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < reason.size();) {
    const std::size_t end = std::min(reason.find("; ", at), reason.size());
    found.push_back(printable(std::string_view(reason).substr(at, end - at)));
    at = end + 2;
  }
  return found;
}

struct KindOfMove {
  const char* member;
  const char* text;
};
constexpr KindOfMove kKinds[] = {{"within_node", "move to another GPU of its node"},
                                 {"between_nodes", "move to another node"}};

// One line for each obstacle.
std::string reason_of(const Json& answer, const std::string& to_do, const Layout& layout) {
  const Json& reason = member(answer, "reason");
  if (!reason.is_string()) return {};
  std::string text = "\n" + paragraph("To " + to_do + ":", layout);
  for (const std::string& obstacle : obstacles_in(reason.get<std::string>()))
    text += paragraph("- " + obstacle, layout);
  return text;
}

void add_row(Table& table, const Json& answer, const std::string& what) {
  const bool can = member(answer, "possible") == true;
  table.add({Cell(can ? "yes" : "no", can ? Tone::kGood : Tone::kBad), what});
}

}  // namespace

std::string view_obstacles(const Json& answer, const Layout& layout) {
  std::string text = paragraph("job " + text_of(answer, "name") + " (" + text_of(answer, "job") + ") at " +
                                   text_of(answer, "at"),
                               layout) +
                     "\n";
  const Json& targets = member(member(answer, "between_nodes"), "targets");
  Table table({{"CAN"}, {"WHAT"}});
  for (const KindOfMove& kind : kKinds) add_row(table, member(answer, kind.member), kind.text);
  for (const Json& target : targets) add_row(table, target, "move to " + text_of(target, "node"));
  text += table.text(layout);
  for (const KindOfMove& kind : kKinds) {
    const bool is_told_below = kind.member == std::string_view("between_nodes") && !targets.empty();
    if (!is_told_below) text += reason_of(member(answer, kind.member), kind.text, layout);
  }
  for (const Json& target : targets) text += reason_of(target, "move to " + text_of(target, "node"), layout);
  return text;
}

int doctor_of_job(Context& context, const std::string& job) {
  const Result<Json> answer = context.coordinator.get("/v1/jobs/" + path_part(job) + "/obstacles");
  if (!answer) return report(context, answer.assume_error());
  if (context.json) {
    context.print(answer.assume_value());
  } else {
    context.out << view_obstacles(answer.assume_value(), context.layout()) << std::flush;
  }
  return kDone;
}

}  // namespace ckpt::cli
