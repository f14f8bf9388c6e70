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

}  // namespace

std::string view_obstacles(const Json& answer, const Layout& layout) {
  std::string text = paragraph("job " + text_of(answer, "name") + " (" + text_of(answer, "job") + ") at " +
                                   text_of(answer, "at"),
                               layout) +
                     "\n";
  Table table({{"CAN"}, {"WHAT"}});
  for (const KindOfMove& kind : kKinds) {
    const bool can = member(member(answer, kind.member), "possible") == true;
    table.add({Cell(can ? "yes" : "no", can ? Tone::kGood : Tone::kBad), kind.text});
  }
  text += table.text(layout);
  for (const KindOfMove& kind : kKinds) {
    const Json& reason = member(member(answer, kind.member), "reason");
    if (!reason.is_string()) continue;
    text += "\n" + paragraph(std::string("To ") + kind.text + ":", layout);
    for (const std::string& obstacle : obstacles_in(reason.get<std::string>()))
      text += paragraph("- " + obstacle, layout);
  }
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
