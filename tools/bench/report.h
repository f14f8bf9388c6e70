// SPDX-License-Identifier: Apache-2.0
// The report of gpumigrate-bench: facts about the machine, and sections with rows of measured values and
// goals. It is written as JSON (for programs), as a table for a terminal, and as Markdown for
// docs/benchmarks.md.
//
//   Report report(facts);
//   Section& section = report.add_section("fingerprint", "The device fingerprint of 1 GiB beside a plain read
//   of it"); section.set_columns({{"rate", "GB/s"}, {"ratio", ""}});
//   section.add_row("device fingerprint", {spread_of(rates), spread_of(ratios)});
//   section.add_goal("device fingerprint / plain read", median_ratio, Relation::kAtLeast, 0.85);
//   section.add_note("the plain read is one kernel over the same chunks");
//
// A figure is the median of several interleaved runs, with the least and the greatest value. A ratio is
// computed within each pair of runs and then summarized, never from two medians.
// Threads: one thread fills a report. Ownership: sections exist as long as the report, and references to them
// stay valid. Errors: write_file() returns why the file could not be written. GB/s = 1e9 bytes per second.
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

// The median, least and greatest value of `count` runs.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
  std::size_t count = 0;
};
// Returns the spread of the values. Without values all fields are zero. For an even count the median is the
// mean of the middle two.
[[nodiscard]] Spread spread_of(std::span<const double> values);
// Returns one value that was not repeated (a size, a count).
[[nodiscard]] Spread single(double value);
// Returns a[i] / b[i] of each pair.
[[nodiscard]] std::vector<double> ratios_of(std::span<const double> a, std::span<const double> b);

struct Column {
  std::string name;
  std::string unit;  // the unit; empty: a plain number
};

// A cell of a table. It is empty if it was not measured or does not apply to its row.
using Cell = std::optional<Spread>;

struct Row {
  std::string name;
  std::vector<Cell> cells;  // one cell per column
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
  // Adds a row with as many cells as columns. Missing cells are empty.
  void add_row(std::string name, std::vector<Cell> cells);
  void add_goal(std::string name, double value, Relation relation, double bound, std::string unit = {});
  void add_note(std::string text);
  // Marks the section as not measured here, with the reason (no second GPU, a missing program). This is not a
  // failure.
  void skip(std::string reason) { skipped_ = std::move(reason); }
  // Marks the section as failed, so that the run ends with exit code 1.
  void fail(const Error& error) { failed_ = error.to_string(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& measures() const noexcept { return measures_; }
  [[nodiscard]] const std::vector<Column>& columns() const noexcept { return columns_; }
  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const std::vector<Goal>& goals() const noexcept { return goals_; }
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
  [[nodiscard]] const std::string& skipped() const noexcept { return skipped_; }
  [[nodiscard]] const std::string& failed() const noexcept { return failed_; }
  // Returns the cell in that row and column; nullopt: none.
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

// The machine, the driver and the command line that produced the figures.
struct Facts {
  std::string command;
  std::string version;
  std::string date;  // the date in ISO 8601, UTC
  std::string cpu;
  unsigned cores = 0;
  std::uint64_t memory_bytes = 0;
  double load = 0;  // load average of the last minute at the beginning of the run
  std::string kernel;
  std::string device;  // the device's name from the driver; empty: no device
  int devices = 0;
  int driver_version = 0;  // the value of cuDriverGetVersion
  bool software_driver = false;
};
// Collects the facts from the machine and, if available, from the CUDA driver.
[[nodiscard]] Facts collect_facts(std::span<char* const> command_line);

class Report {
 public:
  explicit Report(Facts facts) : facts_(std::move(facts)) {}

  Section& add_section(std::string name, std::string measures);
  [[nodiscard]] const Section* find_section(std::string_view name) const;
  // Marks the section `name` as failed with the error. Adds the section first if it does not exist.
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

// Writes the text as the whole content of the file.
Result<void> write_file(const std::string& path, std::string_view text);
// Formats a number with three significant digits: "0.912", "12.3", "4.1e-05".
[[nodiscard]] std::string format_number(double value);

}  // namespace ckpt::bench
