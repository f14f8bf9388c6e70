// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/common/units.h"

namespace ckpt::bench {
namespace {

using nlohmann::json;

std::string title_of(const Column& column) {
  return column.unit.empty() ? column.name : column.name + ", " + column.unit;
}

std::string text_of(const Cell& cell) {
  if (!cell) return "";
  std::string text = format_number(cell->median);
  if (cell->count > 1) text += " (" + format_number(cell->min) + "–" + format_number(cell->max) + ")";
  return text;
}

std::string text_of(const Goal& goal) {
  return goal.name + ": " + format_number(goal.value) + (goal.unit.empty() ? "" : " " + goal.unit) +
         " (goal " + (goal.relation == Relation::kAtLeast ? "≥ " : "≤ ") + format_number(goal.bound) + ") " +
         (goal.passed() ? "passed" : "missed");
}

std::string machine_of(const Facts& facts) {
  return facts.cpu + ", " + std::to_string(facts.cores) + " cores, " +
         tools::format_bytes(static_cast<double>(facts.memory_bytes)) + ", Linux " + facts.kernel +
         ", load at the start " + format_number(facts.load);
}

std::string driver_of(const Facts& facts) {
  if (facts.devices == 0) return "none";
  return std::string(facts.software_driver ? "software driver" : "CUDA driver") + ", API " +
         std::to_string(facts.driver_version / 1000) + "." +
         std::to_string(facts.driver_version % 1000 / 10) + ", " + std::to_string(facts.devices) + " x " +
         facts.device;
}

// Returns the number of characters that a terminal shows, not of bytes.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

using Grid = std::vector<std::vector<std::string>>;

// Returns the section's table as rows of text. The first row has the headings.
Grid grid_of(const Section& section) {
  Grid grid(1);
  grid[0].emplace_back();
  for (const Column& column : section.columns()) grid[0].push_back(title_of(column));
  for (const Row& row : section.rows()) {
    auto& line = grid.emplace_back();
    line.push_back(row.name);
    for (const Cell& cell : row.cells) line.push_back(text_of(cell));
  }
  return grid;
}

void print_grid(std::FILE* out, const Grid& grid) {
  std::vector<std::size_t> widths(grid[0].size(), 0);
  for (const auto& line : grid)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  for (const auto& line : grid) {
    std::string text = " ";
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - width_of(line[i]), ' ');
      text += " " + (i == 0 ? line[i] + pad : pad + line[i]) + " ";
    }
    std::fprintf(out, "%s\n", text.c_str());
  }
}

json to_json(const Section& section) {
  json out{{"name", section.name()}, {"measures", section.measures()}};
  out["columns"] = json::array();
  for (const Column& column : section.columns())
    out["columns"].push_back({{"name", column.name}, {"unit", column.unit}});
  out["rows"] = json::array();
  for (const Row& row : section.rows()) {
    json values = json::object();
    for (std::size_t i = 0; i < section.columns().size(); ++i) {
      if (!row.cells[i]) continue;
      const Spread& cell = *row.cells[i];
      values[section.columns()[i].name] = {
          {"median", cell.median}, {"min", cell.min}, {"max", cell.max}, {"runs", cell.count}};
    }
    out["rows"].push_back({{"name", row.name}, {"values", values}});
  }
  out["goals"] = json::array();
  for (const Goal& goal : section.goals())
    out["goals"].push_back({{"name", goal.name},
                            {"value", goal.value},
                            {"relation", goal.relation == Relation::kAtLeast ? ">=" : "<="},
                            {"goal", goal.bound},
                            {"unit", goal.unit},
                            {"passed", goal.passed()}});
  out["notes"] = section.notes();
  out["skipped"] = section.skipped().empty() ? json() : json(section.skipped());
  out["failed"] = section.failed().empty() ? json() : json(section.failed());
  return out;
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  const double median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {median, sorted.front(), sorted.back(), sorted.size()};
}

Spread single(double value) {
  return {value, value, value, 1};
}

std::vector<double> ratios_of(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    ratios.push_back(b[i] == 0 ? 0 : a[i] / b[i]);
  return ratios;
}

std::string format_number(double value) {
  char text[64];
  const double size = std::fabs(value);
  if (size >= 1000 && size < 1e9)
    std::snprintf(text, sizeof text, "%.0f", value);
  else if (size >= 100)
    std::snprintf(text, sizeof text, "%.4g", value);
  else
    std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void Section::add_row(std::string name, std::vector<Cell> cells) {
  cells.resize(columns_.size());
  rows_.push_back({std::move(name), std::move(cells)});
}

void Section::add_goal(std::string name, double value, Relation relation, double bound, std::string unit) {
  goals_.push_back({std::move(name), value, relation, bound, std::move(unit)});
}

// This function is not inline, because GCC 12 issues a wrong warning if a literal becomes the text.
void Section::add_note(std::string text) {
  notes_.push_back(std::move(text));
}

Cell Section::find(std::string_view row, std::string_view column) const {
  for (const Row& candidate : rows_) {
    if (candidate.name != row) continue;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].name == column) return candidate.cells[i];
  }
  return std::nullopt;
}

Section& Report::add_section(std::string name, std::string measures) {
  return sections_.emplace_back(std::move(name), std::move(measures));
}

const Section* Report::find_section(std::string_view name) const {
  for (const Section& section : sections_)
    if (section.name() == name) return &section;
  return nullptr;
}

void Report::add_failure(const std::string& name, const std::string& summary, const Error& error) {
  for (Section& section : sections_)
    if (section.name() == name) return section.fail(error);
  add_section(name, summary).fail(error);
}

bool Report::any_failed() const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [](const Section& s) { return !s.failed().empty(); });
}

bool Report::all_goals_passed() const {
  return std::all_of(sections_.begin(), sections_.end(), [](const Section& s) {
    return std::all_of(s.goals().begin(), s.goals().end(), [](const Goal& goal) { return goal.passed(); });
  });
}

json Report::to_json() const {
  json out{{"format", "gpumigrate-bench 1"},
           {"command", facts_.command},
           {"version", facts_.version},
           {"date", facts_.date},
           {"machine",
            {{"cpu", facts_.cpu},
             {"cores", facts_.cores},
             {"memory_bytes", facts_.memory_bytes},
             {"kernel", facts_.kernel},
             {"load", facts_.load}}},
           {"driver",
            {{"software", facts_.software_driver},
             {"version", facts_.driver_version},
             {"devices", facts_.devices},
             {"device", facts_.device}}}};
  out["sections"] = json::array();
  for (const Section& section : sections_) out["sections"].push_back(bench::to_json(section));
  return out;
}

void Report::print_table(std::FILE* out) const {
  std::fprintf(out, "gpumigrate-bench %s, %s\nmachine: %s\ndriver: %s\ncommand: %s\n", facts_.version.c_str(),
               facts_.date.c_str(), machine_of(facts_).c_str(), driver_of(facts_).c_str(),
               facts_.command.c_str());
  for (const Section& section : sections_) {
    std::fprintf(out, "\n%s: %s\n", section.name().c_str(), section.measures().c_str());
    if (!section.failed().empty()) std::fprintf(out, "  FAILED: %s\n", section.failed().c_str());
    if (!section.skipped().empty()) std::fprintf(out, "  not possible here: %s\n", section.skipped().c_str());
    if (!section.rows().empty()) print_grid(out, grid_of(section));
    for (const Goal& goal : section.goals()) std::fprintf(out, "  %s\n", text_of(goal).c_str());
    for (const std::string& note : section.notes()) std::fprintf(out, "  note: %s\n", note.c_str());
  }
}

std::string Report::to_markdown() const {
  std::string out = "`" + facts_.command + "`\n\nMachine: " + machine_of(facts_) +
                    ". Driver: " + driver_of(facts_) + ". gpumigrate " + facts_.version + ", " + facts_.date +
                    ". Medians (least–greatest).\n";
  for (const Section& section : sections_) {
    out += "\n### " + section.name() + "\n\n" + section.measures() + ".\n\n";
    if (!section.failed().empty()) out += "**Failed**: " + section.failed() + "\n\n";
    if (!section.skipped().empty()) out += "Not possible here: " + section.skipped() + "\n\n";
    if (!section.rows().empty()) {
      const Grid grid = grid_of(section);
      for (std::size_t i = 0; i < grid.size(); ++i) {
        for (const std::string& cell : grid[i]) out += "| " + cell + " ";
        out += "|\n";
        for (std::size_t k = 0; i == 0 && k < grid[0].size(); ++k) out += "|---";
        if (i == 0) out += "|\n";
      }
      out += "\n";
    }
    for (const Goal& goal : section.goals()) out += "- " + text_of(goal) + "\n";
    for (const std::string& note : section.notes()) out += "- " + note + "\n";
  }
  return out;
}

Result<void> write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return Error::from_errno("Writing " + path);
  return ok();
}

}  // namespace ckpt::bench
