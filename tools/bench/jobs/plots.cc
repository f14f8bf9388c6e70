// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench plots: writes a gnuplot script for each sweep of the same run,
// downtime-dirty-share.gnuplot and downtime-link-rate.gnuplot, with the measured values in it. If gnuplot is
// installed, it draws them as SVG files next to the scripts.
#include <cstdio>
#include <set>
#include <string>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/command.h"
#include "tools/bench/jobs/sweeps.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::bench {
namespace {

constexpr Nanos kPatience = 60'000'000'000;

struct Plot {
  const char* section;
  const char* column;
  const char* file;  // the file's name without an extension
  const char* title;
  const char* x_label;
};

constexpr Plot kPlots[] = {
    {kDirtySweep, kDirtyColumn, "downtime-dirty-share", "Downtime against what changes each step",
     "4 KiB pages of the state that a step rewrites, %"},
    {kLinkSweep, kLinkColumn, "downtime-link-rate", "Downtime against the rate of the link",
     "limit of the link (--bandwidth), GiB/s"},
};

struct Line {
  const char* column;
  const char* block;  // the name of the line's data in the script
  const char* title;
  const char* style;  // gnuplot's drawing style
};

// Blue and orange can be distinguished with any kind of color vision.
constexpr Line kLines[] = {
    {kStopCopyColumn, "$stop_copy", "stop-copy", "using 1:2:3:4 with yerrorlines lc rgb '#d55e00' lw 2 pt 7"},
    {kLiveColumn, "$live", "live", "using 1:2:3:4 with yerrorlines lc rgb '#0072b2' lw 2 pt 7"},
    {kBoundColumn, "$bound", "bound of live", "using 1:2 with lines lc rgb '#555555' lw 2 dt 2"}};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += (c == '"' || c == '\\' ? std::string("\\") : std::string()) + c;
  return out + "\"";
}

std::string subtitle_of(const Facts& facts) {
  return std::string("medians, least to greatest; ") +
         (facts.software_driver || facts.devices == 0 ? "software driver, " : facts.device + ", ") +
         std::to_string(facts.cores) + " cores, " + facts.date.substr(0, 10);
}

// Returns a named gnuplot block for each line: x, median, least, greatest.
std::string data_of(const Section& section, const Plot& plot) {
  std::string text;
  for (const Line& line : kLines) {
    text += std::string(line.block) + " << END\n";
    for (const Row& row : section.rows()) {
      const Cell x = section.find(row.name, plot.column);
      const Cell y = section.find(row.name, line.column);
      if (!x || !y) continue;
      for (const double value : {x->median, y->median, y->min}) text += number(value) + " ";
      text += number(y->max) + "\n";
    }
    text += "END\n";
  }
  return text;
}

// Returns a tick for each x that was measured.
std::string ticks_of(const Section& section, const Plot& plot) {
  std::set<double> places;
  for (const Row& row : section.rows())
    if (const Cell x = section.find(row.name, plot.column)) places.insert(x->median);
  std::string ticks;
  for (const double place : places) ticks += (ticks.empty() ? "" : ", ") + number(place);
  return ticks;
}

std::string script_of(const Section& section, const Plot& plot, const Facts& facts) {
  std::string text = data_of(section, plot);
  text += "set terminal svg size 700,440 font 'Helvetica,13' background rgb 'white'\n";
  text += "set output '" + std::string(plot.file) + ".svg'\n";
  text += "set title " + quoted(plot.title) + ".\"\\n\"." + quoted(subtitle_of(facts)) + " noenhanced\n";
  text += "set xlabel " + quoted(plot.x_label) + " noenhanced\n";
  text += "set ylabel 'downtime, ms'\n";
  text += "set logscale xy\nset autoscale xfix\nset offsets graph 0.04, graph 0.04, 0, 0\nset grid\n";
  text += "set key outside top center horizontal\n";
  text += "set format y '%g'\nset xtics (" + ticks_of(section, plot) + ")\nplot ";
  const char* separator = "";
  for (const Line& line : kLines) {
    text += std::string(separator) + line.block + " " + line.style + " title " + quoted(line.title);
    separator = ", \\\n     ";
  }
  return text + "\n";
}

// Draws the plot. Returns a note of the result: the drawing, or only its script.
Result<std::string> draw(const std::string& folder, const Plot& plot) {
  const std::string script = std::string(plot.file) + ".gnuplot";
  const Command command{{"/usr/bin/env", "-C", folder, "gnuplot", script}, cli::environment_with({})};
  CKPT_TRY(output, run_command(command, nullptr, kPatience));
  constexpr int kNotFound = 127;  // the exit code of env if gnuplot is not installed
  if (output.exit_code == kNotFound) return script + " (gnuplot, which draws it, is not installed)";
  if (output.exit_code != 0)
    return Error(ErrorCode::kInternal, "gnuplot cannot draw " + script + ": " + output.err);
  return std::string(plot.file) + ".svg, drawn from " + script;
}

}  // namespace

Result<void> bench_plots(const BenchOptions& options, Report& report) {
  std::vector<std::string> notes;
  for (const Plot& plot : kPlots) {
    const Section* sweep = report.find_section(plot.section);
    if (sweep == nullptr || sweep->rows().empty()) continue;
    CKPT_TRYV(
        write_file(options.output + "/" + plot.file + ".gnuplot", script_of(*sweep, plot, report.facts())));
    CKPT_TRY(note, draw(options.output, plot));
    notes.push_back(std::move(note));
  }
  Section& section = report.add_section("plots", "The sweeps as plots, in the folder of --output");
  if (notes.empty()) section.skip("nothing to draw: run the sections `sweeps plots` together");
  for (const std::string& note : notes) section.add_note(note);
  return ok();
}

}  // namespace ckpt::bench
