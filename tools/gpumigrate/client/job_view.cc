// SPDX-License-Identifier: Apache-2.0
// `describe`.
#include <algorithm>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {

std::string clock_text_of(const Json& object, const char* field, const Layout& layout) {
  const std::string text = text_of(object, field);
  const auto then = unix_ms_of(text);
  if (!then) return text;
  constexpr std::int64_t kDayMs = 86'400'000;
  const std::string time = text.substr(11, 8) + "Z";
  return *then / kDayMs == layout.now_ms / kDayMs ? time : text.substr(0, 10) + " " + time;
}

namespace {

std::string head_of(const Json& job, const Layout& layout) {
  const Cell state = state_of_job(job, {});
  std::string rest = has_ended(job) ? ", was at " + place_of(job) : " at " + place_of(job);
  if (!has_value(job, "node")) rest.clear();
  rest +=
      ", started " + clock_text_of(job, "started", layout) + " (" + age_of(job, "started", layout) + " ago)";
  const std::string name = printable(text_of(job, "name") + " (" + text_of(job, "id") + ")    ");
  const std::string text = shortened(name + printable(state.text + rest), layout.width);
  if (text.size() < name.size() + state.text.size()) return text + "\n";
  return name + coloured(state.text, state.tone, layout) + text.substr(name.size() + state.text.size()) +
         "\n";
}

// "~200 ms to another node"; a pause of nothing has not been measured.
void add_pause(const Json& job, const char* field, const char* where, std::string& out) {
  const double pause = number_of(member(job, "expected_pause_ms"), field);
  if (pause <= 0) return;
  const bool estimated = text_of(member(job, "expected_pause_from"), field) == "estimate";
  out +=
      (out.empty() ? "pause " : ", ") + std::string(estimated ? "~" : "") + short_span(pause) + " " + where;
}

std::string mode_of(const Json& job) {
  const std::string way = text_of(job, "way");
  if (has_ended(job) || text_of(job, "state") == "parked")
    return has_value(job, "reason") ? way + "; " + text_of(job, "reason") : way;
  if (!flag_of(job, "movable")) return way + "; not movable: " + text_of(job, "reason");
  std::string pauses;
  const std::string obstacles = obstacles_of(job);
  if (obstacles.empty()) add_pause(job, "between_nodes", "to another node", pauses);
  add_pause(job, "within_node", "within its node", pauses);
  const std::string stays =
      "; " + obstacles + " to another node (gpumigrate doctor --job " + text_of(job, "name") + ")";
  return way + "; movable" + (pauses.empty() ? "" : ": " + pauses) + (obstacles.empty() ? "" : stays);
}

std::string memory_of(const Json& job, const Layout& layout, bool all) {
  const Json& memory = member(job, "memory");
  std::string out =
      short_bytes_of(memory, "now_bytes") + " now, " + short_bytes_of(memory, "peak_bytes") + " peak";
  if (all && has_value(memory, "peak_time")) out += " at " + clock_text_of(memory, "peak_time", layout);
  const Json& quota = member(job, "gpu_memory_bytes");
  const double limit = quota.is_number() ? quota.get<double>() : 0;
  out += ", quota " + (limit > 0 ? short_bytes(limit) : std::string("none"));
  if (limit > 0 && text_of(job, "way") != "transparent") out += " (for placement; not enforced)";
  return out + "; state " + short_bytes_of(job, "state_bytes") + "; priority " + text_of(job, "priority");
}

// "by the minute: 1 GiB 3 GiB - 1 GiB"
std::string minutes_of(const Json& memory) {
  constexpr std::size_t kShown = 10;
  const Json& minutes = member(memory, "minutes");
  std::string out;
  if (!minutes.is_array()) return out;
  for (std::size_t i = minutes.size() - std::min(kShown, minutes.size()); i < minutes.size(); ++i)
    out += (out.empty() ? "" : " ") +
           (minutes[i].is_number() ? short_bytes(minutes[i].get<double>()) : std::string("-"));
  return out;
}

std::string protection_of(const Json& protection, const Layout& layout) {
  std::string out = has_value(protection, "last_image")
                        ? text_of(protection, "last_image") + ", " +
                              (layout.ages ? short_age(number_of(protection, "last_image_age_ms")) : "-") +
                              " old"
                        : "none yet";
  out += "; every " + short_age(number_of(protection, "every_ms")) + ", keeps " + text_of(protection, "keep");
  if (number_of(protection, "last_pause_ms") > 0)
    out += "; pause " + short_span_of(protection, "last_pause_ms");
  return out;
}

std::string command_of(const Json& job) {
  if (!has_value(job, "argv")) return "not shown to viewers";
  std::string out;
  for (const Json& word : member(job, "argv"))
    out += (out.empty() ? "" : " ") + (word.is_string() ? word.get<std::string>() : word.dump());
  return (out.empty() ? "-" : out) + "   (in " + text_of(job, "cwd") + ")";
}

std::string images_of(const Json& job, const Layout& layout) {
  std::string out;
  const Json& protection = member(job, "protection");
  if (protection.is_object()) {
    out += field_line("image", protection_of(protection, layout), layout);
    if (has_value(protection, "last_error"))
      out += field_line("", "FAILS: " + text_of(protection, "last_error"), layout, Tone::kBad);
  } else if (const Json& last = member(job, "last_snapshot"); last.is_object()) {
    out += field_line("image",
                      text_of(last, "image") + ", " + age_of(last, "created", layout) + " old" +
                          (has_value(last, "suspect") ? ", suspect: " + text_of(last, "suspect") : ""),
                      layout);
  }
  if (const Json& operation = member(job, "operation"); operation.is_object())
    out +=
        field_line("images",
                   text_of(operation, "verb") + " is " + text_of(operation, "stage") + ", until " +
                       clock_text_of(operation, "deadline", layout) +
                       (has_value(operation, "cancelled") ? ", given up: " + text_of(operation, "cancelled")
                                                          : "; given up by " + text_of(operation, "cancel")),
                   layout);
  return out;
}

std::string instances_of(const Json& job, const Layout& layout) {
  std::string out =
      field_line("placed", text_of(job, "placed"), layout) +
      (flag_of(job, "unconfirmed")
           ? field_line("taken in",
                        "by its node's word: drains, evacuations and the like leave it where it is until "
                        "`gpumigrate cluster confirm " +
                            text_of(job, "name") + "`",
                        layout)
           : std::string()) +
      field_line("by minute", minutes_of(member(job, "memory")), layout);
  for (const Json& instance : member(job, "instances"))
    out += field_line("instance",
                      text_of(instance, "incarnation") + " at " + text_of(instance, "node") + ", " +
                          text_of(instance, "role") + ", " + text_of(instance, "phase") + ", log " +
                          short_bytes_of(instance, "log_bytes"),
                      layout);
  return out;
}

// Of a job of several.
std::string ranks_of(const Json& job, const Layout& layout) {
  if (!has_value(job, "gpus")) return "";
  std::string out;
  for (const Json& rank : member(job, "ranks")) {
    std::string text = place_of(rank) + ", " + state_of_job(rank, {}).text + ", " + text_of(rank, "name") +
                       " (" + text_of(rank, "job") + ")";
    if (has_value(rank, "reason")) text += "; " + text_of(rank, "reason");
    out += field_line(("rank " + text_of(rank, "rank")).c_str(), text, layout);
  }
  return out;
}

std::string moves_of(const Json& job, const std::vector<api::Migration>& moves, const Layout& layout) {
  const std::size_t count = member(job, "migrations").size();
  if (count == 0) return "";
  const bool some = moves.size() < count;
  std::string out =
      field_line("moves", std::to_string(count) + (some ? ", the last (-a: all):" : ":"), layout);
  for (const api::Migration& move : moves) {
    std::string line = "    " + move.id + "  " + move.from + " -> " + move.to + "  ";
    line += move.result == "done" ? span_or_dash(move.report ? move.report->downtime_ms : std::nullopt)
                                  : move.result.value_or(move.state);
    line += "  " + age_of(move.started.value_or(""), layout) + " ago";
    if (move.reason) line += "  " + reason_of(move);
    if (move.error) line += "  " + *move.error;
    out += shortened(printable(line), layout.width) + "\n";
  }
  return out;
}

std::string events_of(const std::vector<api::Event>& events, const Layout& layout) {
  std::string out = events.empty() ? "" : field_line("events", "the newest:", layout);
  for (const api::Event& event : events) {
    const std::string line = "    " + age_of(event.time, layout) + " ago  " + event.kind + "  " + event.text;
    out += shortened(printable(line), layout.width) + "\n";
  }
  return out;
}

}  // namespace

std::string view_job_state(const Json& job) {
  std::string out = text_of(job, "name") + " (" + text_of(job, "id") + ") " + state_of_job(job, {}).text;
  if (has_value(job, "node")) out += (has_ended(job) ? ", was at " : " at ") + place_of(job);
  return printable(out) + "\n";
}

std::string view_job(const Json& job, const std::vector<api::Migration>& moves,
                     const std::vector<api::Event>& events, bool all, const Layout& layout) {
  std::string out = head_of(job, layout);
  out += ranks_of(job, layout) + field_line("mode", mode_of(job), layout);
  out += field_line("memory", memory_of(job, layout, all), layout);
  out += images_of(job, layout);
  out += field_line("command", command_of(job), layout);
  if (all) out += instances_of(job, layout);
  if (const Json& open = member(job, "open_migration"); open.is_object()) {
    const std::string options =
        options_text(record::from_answer<api::MigrateOptions>(member(open, "options")));
    out += field_line("moving",
                      text_of(open, "from") + " -> " + text_of(open, "to") + " (" + text_of(open, "id") +
                          " " + text_of(open, "state") + ", " + text_of(open, "mode") +
                          (options.empty() ? "" : ", " + options) + ")",
                      layout);
  }
  return out + moves_of(job, moves, layout) + events_of(events, layout);
}

}  // namespace ckpt::cli
