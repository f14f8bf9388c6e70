// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/progress.h"

#include <algorithm>
#include <cmath>

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

constexpr int kBarColumns = 20;

bool is_copying(const Json& migration) {
  const std::string state = text_of(migration, "state");  // later nothing is copied any more
  return (state == "precopy" || state == "granted") && member(migration, "progress").is_object();
}

// Once the second round is over the rate of writing is known, and the estimate is one.
bool has_estimate(const Json& progress) {
  return has_value(progress, "dirty_bytes_per_second") && number_of(progress, "estimate_ms") > 0;
}

// Parts of a line in their order. Those of the least weight leave until the rest fits.
class Parts {
 public:
  void add(int weight, std::string text) {
    if (!text.empty()) parts_.push_back({weight, std::move(text)});
  }
  [[nodiscard]] std::string fitted(std::size_t columns) {
    while (parts_.size() > 1 && width_of(joined()) > columns)
      parts_.erase(std::min_element(parts_.begin(), parts_.end(),
                                    [](const Part& a, const Part& b) { return a.weight < b.weight; }));
    return shortened(joined(), columns);
  }

 private:
  struct Part {
    int weight;
    std::string text;
  };
  [[nodiscard]] std::string joined() const {
    std::string out;
    for (const Part& part : parts_) out += (out.empty() ? "" : "  ") + part.text;
    return out;
  }
  std::vector<Part> parts_;
};

}  // namespace

int copied_percent(const Json& migration) {
  if (!is_copying(migration)) return -1;
  const Json& progress = member(migration, "progress");
  const double state = number_of(progress, "state_bytes");
  if (state <= 0 || number_of(progress, "round") < 1) return 0;
  const double held = state - std::min(state, number_of(progress, "remaining_bytes"));
  return std::clamp(static_cast<int>(std::floor(held * 100 / state)), 0, 99);
}

std::string bar_of(int percent) {
  const int full = std::clamp(percent, 0, 100) * kBarColumns / 100;
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarColumns - full), ' ') + "]";
}

std::string wire_rate_of(const Json& migration) {
  const double rate = number_of(member(migration, "progress"), "wire_bytes_per_second");
  if (!is_copying(migration) || rate <= 0) return "";
  const double limit = number_of(member(migration, "options"), "bandwidth");
  return "wire " + (limit > 0 ? short_rate_of(rate, limit) : short_rate(rate));
}

std::string pause_of(const Json& migration) {
  const Json& progress = member(migration, "progress");
  if (text_of(migration, "mode") == "stop-copy") return "paused";
  const Json& options = member(migration, "options");
  const bool measured = has_estimate(progress);
  const double forecast =
      measured ? number_of(progress, "estimate_ms") : number_of(migration, "expected_pause_ms");
  if (forecast <= 0)
    return has_value(options, "max_downtime_ms") ? "pause <=" + short_span_of(options, "max_downtime_ms")
                                                 : "pause -";
  const double limit = number_of(options, "max_downtime_ms");
  const bool is_over = limit > 0 && forecast > limit;
  return "pause ~" + short_span(forecast) + (is_over ? " (limit " + short_span(limit) + ")" : "");
}

std::string eta_of(const Json& migration) {
  const Json& progress = member(migration, "progress");
  if (!member(progress, "eta_ms").is_number()) return "ETA -";
  const double seconds = std::ceil(number_of(progress, "eta_ms") / 1000);
  return seconds < 100 ? "ETA " + std::to_string(static_cast<int>(std::max(seconds, 0.0))) + " s"
                       : "ETA " + short_span(seconds * 1000);
}

int Progress::percent(const Json& migration) {
  const int now = copied_percent(migration);
  if (now < 0) return now;
  int& highest = highest_[text_of(migration, "id")];
  highest = std::max(highest, now);
  return highest;
}

std::string Progress::line(const Json& migration, std::size_t columns) {
  Parts parts;
  parts.add(5, printable(text_of(migration, "id")));
  parts.add(3, printable(text_of(migration, "job_name") + " > " + text_of(migration, "to")));
  const int done = percent(migration);
  if (done < 0) {
    parts.add(9, printable(text_of(migration, "state")));
  } else {
    parts.add(2, "round " + printable(text_of(member(migration, "progress"), "round")));
    parts.add(1, bar_of(done));
    parts.add(9, std::to_string(done) + "%");
    parts.add(4, wire_rate_of(migration));
    parts.add(9, pause_of(migration));
    parts.add(9, eta_of(migration));
  }
  if (flag_of(migration, "abort_requested")) parts.add(8, "(abort requested)");
  return parts.fitted(columns);
}

}  // namespace ckpt::cli
