// SPDX-License-Identifier: Apache-2.0
// A line chart with logarithmic axes as an SVG file: title, axes with ticks and a grid, and a legend. Each
// point has a marker and a bar from its least to its greatest value. Reads well 700 pixels wide on a light
// page; no font but the reader's own.
// Threads: pure functions. Errors: none; points that are not above zero cannot be shown and are left out.
#pragma once

#include <string>
#include <vector>

namespace ckpt::bench {

struct Point {
  double x = 0;
  double y = 0;
  double least = 0;
  double most = 0;
};

struct Line {
  std::string name;
  std::string color;       // "#rrggbb"
  bool is_dashed = false;  // a bound, not something that was measured
  std::vector<Point> points;
};

struct Chart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  std::vector<Line> lines;
};

[[nodiscard]] std::string draw(const Chart& chart);

// The values to mark on a logarithmic axis from `least` to `most`, both above zero: 1, 2, 5, 10, 20, ... as
// many as `room` allows. At least two.
[[nodiscard]] std::vector<double> log_ticks(double least, double most, std::size_t room);

}  // namespace ckpt::bench
