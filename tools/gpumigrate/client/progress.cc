// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/progress.h"

#include <algorithm>
#include <cmath>

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

constexpr int kBarColumns = 20;

bool is_copying(const api::Migration& migration) {
  // Later states do not copy memory.
  return (migration.state == "precopy" || migration.state == "granted") && migration.progress;
}

// The parts of a line in their order. Parts with the lowest weight are omitted until the line fits.
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

int copied_percent(const api::Migration& migration) {
  if (!is_copying(migration)) return -1;
  const api::MigrationProgress& progress = *migration.progress;
  if (progress.state_bytes == 0 || progress.round < 1) return 0;
  const auto state = static_cast<double>(progress.state_bytes);
  const double held = state - std::min(state, static_cast<double>(progress.remaining_bytes));
  return std::clamp(static_cast<int>(std::floor(held * 100 / state)), 0, 99);
}

std::string bar_of(int percent) {
  const int full = std::clamp(percent, 0, 100) * kBarColumns / 100;
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarColumns - full), ' ') + "]";
}

std::string wire_rate_of(const api::Migration& migration) {
  if (!is_copying(migration) || migration.progress->wire_bytes_per_second.value_or(0) == 0) return "";
  const auto rate = static_cast<double>(*migration.progress->wire_bytes_per_second);
  const auto limit = static_cast<double>(migration.options.bandwidth);
  return "wire " + (limit > 0 ? short_rate_of(rate, limit) : short_rate(rate));
}

std::string pause_of(const api::Migration& migration) {
  if (migration.strategy == "stop-copy") return "paused";
  const auto& progress = migration.progress;
  // Once the second round has ended, the rate of writing is measured and the estimate is meaningful.
  const bool measured = progress && progress->dirty_bytes_per_second && progress->estimate_ms.value_or(0) > 0;
  const double forecast = measured ? *progress->estimate_ms : migration.expected_pause_ms.value_or(0);
  const auto& limit = migration.options.max_downtime_ms;
  if (forecast <= 0) return limit ? "pause <=" + short_span(*limit) : "pause -";
  const bool is_over = limit.value_or(0) > 0 && forecast > *limit;
  return "pause ~" + short_span(forecast) + (is_over ? " (limit " + short_span(*limit) + ")" : "");
}

std::string eta_of(const api::Migration& migration) {
  if (!migration.progress || !migration.progress->eta_ms) return "ETA -";
  const double seconds = std::ceil(*migration.progress->eta_ms / 1000);
  return seconds < 100 ? "ETA " + std::to_string(static_cast<int>(std::max(seconds, 0.0))) + " s"
                       : "ETA " + short_span(seconds * 1000);
}

int Progress::percent(const api::Migration& migration) {
  const int now = copied_percent(migration);
  if (now < 0) return now;
  int& highest = highest_[migration.id];
  highest = std::max(highest, now);
  return highest;
}

std::string Progress::line(const api::Migration& migration, std::size_t columns) {
  Parts parts;
  parts.add(5, printable(migration.id));
  parts.add(3, printable(migration.job_name + " > " + migration.to));
  const int done = percent(migration);
  if (done < 0) {
    parts.add(9, printable(migration.state));
  } else {
    parts.add(2, "round " + std::to_string(migration.progress->round));
    parts.add(1, bar_of(done));
    parts.add(9, std::to_string(done) + "%");
    parts.add(4, wire_rate_of(migration));
    parts.add(9, pause_of(migration));
    parts.add(9, eta_of(migration));
  }
  if (migration.abort_requested) parts.add(8, "(abort requested)");
  return parts.fitted(columns);
}

}  // namespace ckpt::cli
