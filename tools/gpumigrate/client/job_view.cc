// SPDX-License-Identifier: Apache-2.0
// The views of `describe`.
#include <algorithm>

#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {

std::string clock_text(const std::string& time, const Layout& layout) {
  const auto then = unix_ms_of(time);
  if (!then) return time;
  constexpr std::int64_t kDayMs = 86'400'000;
  const std::string clock = time.substr(11, 8) + "Z";
  return *then / kDayMs == layout.now_ms / kDayMs ? clock : time.substr(0, 10) + " " + clock;
}

namespace {

std::string head_of(const api::Job& job, const Layout& layout) {
  const Cell state = state_of_job(job, {});
  std::string rest = has_ended(job) ? ", was at " + place_of(job) : " at " + place_of(job);
  if (!job.node) rest.clear();
  const std::string started = job.started.value_or("-");
  rest += ", started " + clock_text(started, layout) + " (" + age_of(started, layout) + " ago)";
  const std::string name = printable(job.name + " (" + job.id + ")    ");
  const std::string text = shortened(name + printable(state.text + rest), layout.width);
  if (text.size() < name.size() + state.text.size()) return text + "\n";
  return name + coloured(state.text, state.tone, layout) + text.substr(name.size() + state.text.size()) +
         "\n";
}

// Adds a text like "~200 ms to another node". A pause of 0 was not measured and is omitted.
void add_pause(const std::optional<double>& pause_ms, const std::optional<std::string>& source,
               const char* where, std::string& out) {
  if (pause_ms.value_or(0) <= 0) return;
  out += (out.empty() ? "pause " : ", ") + std::string(source == "estimate" ? "~" : "") +
         short_span(*pause_ms) + " " + where;
}

std::string mode_of(const api::JobDetail& detail) {
  const api::Job& job = detail.job;
  if (has_ended(job) || job.state == "parked") return job.reason ? job.mode + "; " + *job.reason : job.mode;
  if (!job.movable) return job.mode + "; not movable: " + job.reason.value_or("-");
  std::string pauses;
  const std::string obstacles = obstacles_of(job);
  const api::ExpectedPauses& expected = detail.expected_pause_ms;
  const api::PauseSources& from = detail.expected_pause_from;
  if (obstacles.empty()) add_pause(expected.between_nodes, from.between_nodes, "to another node", pauses);
  add_pause(expected.within_node, from.within_node, "within its node", pauses);
  const std::string stays = "; " + obstacles + " to another node (gpumigrate doctor --job " + job.name + ")";
  return job.mode + "; movable" + (pauses.empty() ? "" : ": " + pauses) + (obstacles.empty() ? "" : stays);
}

std::string memory_of(const api::Job& job, const Layout& layout, bool all) {
  const auto& memory = job.memory;
  std::string out = (memory ? short_bytes(memory->now_bytes) : "-") + " now, " +
                    (memory ? short_bytes(memory->peak_bytes) : "-") + " peak";
  if (all && memory && memory->peak_time) out += " at " + clock_text(*memory->peak_time, layout);
  const std::uint64_t limit = job.gpu_memory_bytes.value_or(0);
  out += ", quota " + (limit > 0 ? short_bytes(limit) : std::string("none"));
  if (limit > 0 && job.mode != "transparent") out += " (used for placement, not enforced)";
  return out + "; state " + short_bytes(job.state_bytes) + "; priority " + std::to_string(job.priority);
}

// Returns the peak of each of the last minutes, like "1 GiB 3 GiB - 1 GiB".
std::string minutes_of(const std::optional<api::MemoryHistory>& memory) {
  constexpr std::size_t kShown = 10;
  std::string out;
  if (!memory) return out;
  const auto& minutes = memory->minutes;
  for (std::size_t i = minutes.size() - std::min(kShown, minutes.size()); i < minutes.size(); ++i)
    out += (out.empty() ? "" : " ") + bytes_or_dash(minutes[i]);
  return out;
}

std::string protection_of(const api::Protection& protection, const Layout& layout) {
  std::string out = "none yet";
  if (protection.last_image)
    out = *protection.last_image + ", " +
          (layout.ages ? short_age(protection.last_image_age_ms.value_or(0)) : "-") + " old";
  out += "; every " + short_age(protection.every_ms) + ", keeps " + std::to_string(protection.keep);
  if (protection.last_pause_ms.value_or(0) > 0) out += "; pause " + short_span(*protection.last_pause_ms);
  return out;
}

std::string command_of(const api::JobDetail& job) {
  if (!job.argv) return "not shown to the role viewer";
  std::string out;
  for (const std::string& word : job.argv->words) out += (out.empty() ? "" : " ") + word;
  return (out.empty() ? "-" : out) + "   (in " + (job.cwd ? job.cwd->text : "-") + ")";
}

std::string operation_text(const api::Operation& operation, const Layout& layout) {
  return operation.verb + " is " + operation.stage + ", deadline " +
         clock_text(operation.deadline.value_or("-"), layout) +
         (operation.cancelled ? ", cancelled: " + *operation.cancelled
                              : "; to cancel it: " + operation.cancel);
}

std::string images_of(const api::JobDetail& detail, const Layout& layout) {
  std::string out;
  if (const auto& protection = detail.job.protection) {
    out += field_line("image", protection_of(*protection, layout), layout);
    if (protection->last_error)
      out += field_line("", "FAILS: " + *protection->last_error, layout, Tone::kBad);
  } else if (const auto& last = detail.last_snapshot) {
    out += field_line("image",
                      last->image + ", " + age_of(last->created, layout) + " old" +
                          (last->suspect ? ", suspect: " + *last->suspect : ""),
                      layout);
  }
  if (detail.operation) out += field_line("images", operation_text(*detail.operation, layout), layout);
  return out;
}

std::string instances_of(const api::JobDetail& detail, const Layout& layout) {
  std::string out = field_line("placed", detail.placed.value_or("-"), layout);
  if (detail.job.unconfirmed)
    out += field_line("unconfirmed",
                      "only its node has reported this job: drains, evacuations and rebalances do not move "
                      "the job before `gpumigrate cluster confirm " +
                          detail.job.name + "`",
                      layout);
  out += field_line("by minute", minutes_of(detail.job.memory), layout);
  for (const api::Instance& instance : detail.instances)
    out += field_line("instance",
                      std::to_string(instance.incarnation) + " at " + instance.node + ", " + instance.role +
                          ", " + instance.phase + ", log " + short_bytes(instance.log_bytes),
                      layout);
  return out;
}

// Returns a line for each rank of a job of several ranks. Returns an empty text for another job.
std::string ranks_of(const api::Job& job, const Layout& layout) {
  if (job.size < 2) return "";
  std::string out;
  for (const api::JobRank& rank : job.ranks) {
    const api::Job shown{
        .id = rank.job, .state = rank.state, .silent_node = rank.silent_node, .exit_code = rank.exit_code};
    std::string text = rank.node + ":" + std::to_string(rank.gpu) + ", " + state_of_job(shown, {}).text +
                       ", " + rank.name + " (" + rank.job + ")";
    if (rank.reason) text += "; " + *rank.reason;
    out += field_line(("rank " + std::to_string(rank.rank)).c_str(), text, layout);
  }
  return out;
}

std::string moves_of(const api::JobDetail& job, const std::vector<api::Migration>& moves,
                     const Layout& layout) {
  const std::size_t count = job.migrations.size();
  if (count == 0) return "";
  const bool some = moves.size() < count;
  std::string out =
      field_line("moves", std::to_string(count) + (some ? ", the newest (-a shows all):" : ":"), layout);
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

std::string view_job_state(const api::Job& job) {
  std::string out = job.name + " (" + job.id + ") " + state_of_job(job, {}).text;
  if (job.node) out += (has_ended(job) ? ", was at " : " at ") + place_of(job);
  return printable(out) + "\n";
}

std::string view_job(const api::JobDetail& detail, const std::vector<api::Migration>& moves,
                     const std::vector<api::Event>& events, bool all, const Layout& layout) {
  std::string out = head_of(detail.job, layout);
  out += ranks_of(detail.job, layout) + field_line("mode", mode_of(detail), layout);
  if (detail.job.connections == "reset")
    out += field_line("connections", "reset: a move to another node resets the connections to other programs",
                      layout);
  if (detail.job.namespaces == "own")
    out += field_line("namespaces", detail.job.private_tmp ? "own, with a private /tmp" : "own", layout);
  out += field_line("memory", memory_of(detail.job, layout, all), layout);
  out += images_of(detail, layout);
  out += field_line("command", command_of(detail), layout);
  if (all) out += instances_of(detail, layout);
  if (const auto& open = detail.open_migration) {
    const std::string options = options_text(open->options);
    out += field_line("moving",
                      open->from + " -> " + open->to + " (" + open->id + " " + open->state + ", " +
                          open->strategy + (options.empty() ? "" : ", " + options) + ")",
                      layout);
  }
  return out + moves_of(detail, moves, layout) + events_of(events, layout);
}

}  // namespace ckpt::cli
