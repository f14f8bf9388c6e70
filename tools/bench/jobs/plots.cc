// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench plots: draws the sweeps of the same run, downtime-dirty-share.svg and
// downtime-link-rate.svg.
#include <string>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/chart.h"
#include "tools/bench/jobs/sweeps.h"

namespace ckpt::bench {
namespace {

struct Wanted {
  const char* section;
  const char* column;
  const char* file;
  const char* title;
  const char* x_label;
};

constexpr Wanted kWanted[] = {
    {kDirtySweep, kDirtyColumn, "downtime-dirty-share.svg", "Downtime against what changes each step",
     "4 KiB pages of the state that a step rewrites, %"},
    {kLinkSweep, kLinkColumn, "downtime-link-rate.svg", "Downtime against the rate of the link",
     "limit of the link (--bandwidth), GiB/s"},
};

struct Drawn {
  const char* column;
  const char* name;
  const char* color;
  bool is_dashed;
};

// Blue and orange differ for every kind of sight.
constexpr Drawn kDrawn[] = {{kStopCopyColumn, "stop-copy", "#d55e00", false},
                            {kLiveColumn, "live", "#0072b2", false},
                            {kBoundColumn, "bound of live", "#555555", true}};

Chart chart_of(const Section& section, const Wanted& wanted, const Facts& facts) {
  Chart chart;
  chart.title = wanted.title;
  chart.subtitle = std::string("medians, least to greatest; ") +
                   (facts.software_driver || facts.devices == 0 ? "software driver, " : facts.device + ", ") +
                   std::to_string(facts.cores) + " cores, " + facts.date.substr(0, 10);
  chart.x_label = wanted.x_label;
  chart.y_label = "downtime, ms";
  for (const Drawn& drawn : kDrawn) {
    Line line{drawn.name, drawn.color, drawn.is_dashed, {}};
    for (const Row& row : section.rows()) {
      const Cell x = section.find(row.name, wanted.column);
      const Cell y = section.find(row.name, drawn.column);
      if (x && y) line.points.push_back({x->median, y->median, y->least, y->most});
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

Result<void> bench_plots(const BenchOptions& options, Report& report) {
  std::vector<std::string> written;
  for (const Wanted& wanted : kWanted) {
    const Section* sweep = report.find_section(wanted.section);
    if (sweep == nullptr || sweep->rows().empty()) continue;
    CKPT_TRYV(write_file(options.output + "/" + wanted.file, draw(chart_of(*sweep, wanted, report.facts()))));
    written.emplace_back(wanted.file);
  }
  Section& section = report.add_section("plots", "The sweeps as drawings, in the folder of --output");
  if (written.empty()) section.skip("nothing to draw: ask for `sweeps plots` in one run");
  for (const std::string& file : written) section.add_note(file);
  return ok();
}

}  // namespace ckpt::bench
