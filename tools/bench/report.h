// SPDX-License-Identifier: Apache-2.0
// The report of gpumigrate-bench: facts about the machine, and sections with rows of measured values and
// goals. Written as JSON (for programs), as a table for a terminal and as Markdown for docs/benchmarks.md.
//
//   Report report(facts);
//   Section& section = report.add_section("fingerprint", "The device fingerprint of 1 GiB beside a plain read
//   of it"); section.set_columns({{"rate", "GB/s"}, {"ratio", ""}});
//   section.add_row("device fingerprint", {spread_of(rates), spread_of(ratios)});
//   section.add_goal("device fingerprint / plain read", median_ratio, Relation::kAtLeast, 0.85);
//   section.add_note("the plain read is one kernel over the same chunks");
//
// A figure is the median of several interleaved runs with its least and greatest. A ratio is taken within
// each pair of runs and then summarised, never from two medians. Threads: none, one thread fills a report.
// Ownership: sections live as long as the report, references to them stay valid. Errors: write_file() returns
// why the file could not be written. GB/s = 1e9 bytes per second.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::bench {

// Median, least and greatest value of `count` runs.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  std::size_t count = 0;
};
// No values: all zero. Even counts: the mean of the middle two.
[[nodiscard]] Spread spread_of(std::span<const double> values);
// One value that was not repeated (a size, a count).
[[nodiscard]] Spread single(double value);
// a[i] / b[i] of each pair.
[[nodiscard]] std::vector<double> ratios_of(std::span<const double> a, std::span<const double> b);

struct Column {
  std::string name;
  std::string unit;  // empty: a plain number
};

// A cell may be empty: not measured, or it makes no sense in this row.
using Cell = std::optional<Spread>;

struct Row {
  std::string name;
  std::vector<Cell> cells;  // one per column
};

enum class Relation : std::uint8_t { kAtLeast, kAtMost };

struct Goal {
  std::string name;
  double value = 0;
  Relation relation = Relation::kAtLeast;
  double bound = 0;
  std::string unit;
  [[nodiscard]] bool passed() const noexcept {
    return relation == Relation::kAtLeast ? value >= bound : value <= bound;
  }
};

class Section {
 public:
  Section(std::string name, std::string measures) : name_(std::move(name)), measures_(std::move(measures)) {}

  void set_columns(std::vector<Column> columns) { columns_ = std::move(columns); }
  // As many cells as columns; missing ones are empty.
  void add_row(std::string name, std::vector<Cell> cells);
  void add_goal(std::string name, double value, Relation relation, double bound, std::string unit = {});
  void add_note(std::string text);
  // Not measured here, and why (no second GPU, a program that is missing): not a failure.
  void skip(std::string reason) { skipped_ = std::move(reason); }
  // It could not be measured although it should: the run ends with exit code 1.
  void fail(const Error& error) { failed_ = error.to_string(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& measures() const noexcept { return measures_; }
  [[nodiscard]] const std::vector<Column>& columns() const noexcept { return columns_; }
  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const std::vector<Goal>& goals() const noexcept { return goals_; }
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
  [[nodiscard]] const std::string& skipped() const noexcept { return skipped_; }
  [[nodiscard]] const std::string& failed() const noexcept { return failed_; }
  // The cell of that row and column, if there is one.
  [[nodiscard]] Cell find(std::string_view row, std::string_view column) const;

 private:
  std::string name_;
  std::string measures_;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
  std::vector<Goal> goals_;
  std::vector<std::string> notes_;
  std::string skipped_;
  std::string failed_;
};

// Where the figures are from.
struct Facts {
  std::string command;
  std::string version;
  std::string date;  // ISO 8601, UTC
  std::string cpu;
  unsigned cores = 0;
  std::uint64_t memory_bytes = 0;
  double load = 0;  // of the last minute, when the run began
  std::string kernel;
  std::string device;  // as the driver names it; empty without one
  int devices = 0;
  int driver_version = 0;  // cuDriverGetVersion
  bool software_driver = false;
};
// Asks the machine and, if there is one, the CUDA driver.
[[nodiscard]] Facts collect_facts(std::span<char* const> command_line);

class Report {
 public:
  explicit Report(Facts facts) : facts_(std::move(facts)) {}

  Section& add_section(std::string name, std::string measures);
  [[nodiscard]] const Section* find_section(std::string_view name) const;
  // The error of a section that has been begun or not.
  void add_failure(const std::string& name, const std::string& summary, const Error& error);
  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  [[nodiscard]] const std::deque<Section>& sections() const noexcept { return sections_; }
  [[nodiscard]] bool any_failed() const;
  [[nodiscard]] bool all_goals_passed() const;

  [[nodiscard]] nlohmann::json to_json() const;
  void print_table(std::FILE* out) const;
  [[nodiscard]] std::string to_markdown() const;

 private:
  Facts facts_;
  std::deque<Section> sections_;
};

// The text as the whole content of the file.
Result<void> write_file(const std::string& path, std::string_view text);
// "0.912", "12.3", "4.1e-05": three significant digits.
[[nodiscard]] std::string format_number(double value);

}  // namespace ckpt::bench
