// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

namespace ckpt::bench {
namespace {

constexpr double kWidth = 700;
constexpr double kHeight = 440;
constexpr double kLeft = 72;
constexpr double kRight = 24;
constexpr double kTop = 100;
constexpr double kBottom = 56;
constexpr std::size_t kMaxTicks = 9;
constexpr double kPadding = 0.04;  // of the length of the lower axis, so that no point lies on the other one
constexpr double kCap = 4;         // half of the width of a bar's ends
constexpr const char* kInk = "#222222";
constexpr const char* kSoftInk = "#555555";
constexpr const char* kGrid = "#e3e3e3";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string label(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// A logarithmic axis from pixel `from` to pixel `to`, over all ticks and a little more.
class Axis {
 public:
  Axis(std::vector<double> ticks, double padding, double from, double to)
      : ticks_(std::move(ticks)), from_(from), to_(to) {
    const double length = std::max(std::log(ticks_.back()) - std::log(ticks_.front()), 1e-3);
    least_ = std::log(ticks_.front()) - padding * length;
    most_ = std::log(ticks_.back()) + padding * length;
  }
  [[nodiscard]] double at(double value) const {
    return from_ + (std::log(value) - least_) / (most_ - least_) * (to_ - from_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  std::vector<double> ticks_;
  double from_;
  double to_;
  double least_ = 0;
  double most_ = 1;
};

class Drawing {
 public:
  Drawing() {
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) + " " +
           number(kHeight) + "\" width=\"" + number(kWidth) + "\" height=\"" + number(kHeight) +
           "\" font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
           "fill=\"#ffffff\"/>\n";
  }

  void line(double x1, double y1, double x2, double y2, const std::string& color, double width,
            bool dashed = false) {
    out_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
            number(y2) + "\" stroke=\"" + color + "\" stroke-width=\"" + number(width) + "\"" +
            (dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
  }

  void path(const std::vector<std::pair<double, double>>& places, const std::string& color, bool dashed) {
    std::string points;
    for (const auto& [x, y] : places) points += (points.empty() ? "" : " ") + number(x) + "," + number(y);
    out_ += "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + color + "\" stroke-width=\"2\"" +
            (dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
  }

  void dot(double x, double y, const std::string& color) {
    out_ += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"4\" fill=\"" + color + "\"/>\n";
  }

  void text(double x, double y, const std::string& what, const char* anchor, int size, const char* color,
            const std::string& more = {}) {
    out_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor +
            "\" font-size=\"" + std::to_string(size) + "\" fill=\"" + color + "\"" + more + ">" +
            escaped(what) + "</text>\n";
  }

  [[nodiscard]] std::string finish() && { return std::move(out_) + "</svg>\n"; }

 private:
  std::string out_;
};

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  void take(double value) {
    if (!(value > 0) || !std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

bool is_shown(const Point& point) {
  return point.x > 0 && point.y > 0 && std::isfinite(point.x) && std::isfinite(point.y);
}

// Where the points are, if there is room to mark each.
std::vector<double> places_of(const Chart& chart, const Range& across) {
  std::set<double> places;
  for (const Line& line : chart.lines)
    for (const Point& point : line.points)
      if (is_shown(point)) places.insert(point.x);
  if (places.size() < 2 || places.size() > kMaxTicks) return log_ticks(across.least, across.most, kMaxTicks);
  return {places.begin(), places.end()};
}

void draw_frame(Drawing& drawing, const Chart& chart, const Axis& x, const Axis& y) {
  const double floor = kHeight - kBottom;
  for (const double tick : y.ticks()) {
    drawing.line(kLeft, y.at(tick), kWidth - kRight, y.at(tick), kGrid, 1);
    drawing.text(kLeft - 8, y.at(tick) + 4, label(tick), "end", 13, kInk);
  }
  for (const double tick : x.ticks()) {
    drawing.line(x.at(tick), kTop, x.at(tick), floor, kGrid, 1);
    drawing.text(x.at(tick), floor + 20, label(tick), "middle", 13, kInk);
  }
  drawing.line(kLeft, floor, kWidth - kRight, floor, kInk, 1);
  drawing.line(kLeft, kTop, kLeft, floor, kInk, 1);
  drawing.text((kLeft + kWidth - kRight) / 2, kHeight - 14, chart.x_label, "middle", 14, kInk);
  const double middle = (kTop + floor) / 2;
  drawing.text(18, middle, chart.y_label, "middle", 14, kInk,
               " transform=\"rotate(-90 18 " + number(middle) + ")\"");
  drawing.text(kLeft, 26, chart.title, "start", 17, kInk, " font-weight=\"bold\"");
  drawing.text(kLeft, 46, chart.subtitle, "start", 13, kSoftInk);
}

void draw_legend(Drawing& drawing, const Chart& chart) {
  double at = kLeft;
  for (const Line& line : chart.lines) {
    drawing.line(at, 74, at + 28, 74, line.color, 2, line.is_dashed);
    if (!line.is_dashed) drawing.dot(at + 14, 74, line.color);
    drawing.text(at + 36, 79, line.name, "start", 14, kInk);
    at += 36 + 8.0 * static_cast<double>(line.name.size()) + 28;  // about what the text takes
  }
}

void draw_line(Drawing& drawing, const Line& line, const Axis& x, const Axis& y) {
  std::vector<std::pair<double, double>> places;
  for (const Point& point : line.points)
    if (is_shown(point)) places.emplace_back(x.at(point.x), y.at(point.y));
  drawing.path(places, line.color, line.is_dashed);
  if (line.is_dashed) return;
  for (const Point& point : line.points) {
    if (!is_shown(point)) continue;
    const double at = x.at(point.x);
    if (point.least > 0 && point.most > point.least) {
      drawing.line(at, y.at(point.least), at, y.at(point.most), line.color, 1);
      for (const double end : {point.least, point.most})
        drawing.line(at - kCap, y.at(end), at + kCap, y.at(end), line.color, 1);
    }
    drawing.dot(at, y.at(point.y), line.color);
  }
}

}  // namespace

std::vector<double> log_ticks(double least, double most, std::size_t room) {
  const double first = std::floor(std::log10(least));
  const double last = std::ceil(std::log10(most));
  std::vector<double> ticks;
  // The densest of these that fits.
  for (const std::vector<double>& steps : {std::vector<double>{1, 2, 5}, {1, 3}, {1}}) {
    ticks.clear();
    for (double power = first; power <= last; ++power)
      for (const double step : steps) ticks.push_back(step * std::pow(10.0, power));
    // From the last one at or below `least` to the first one at or above `most`.
    const auto begin = std::prev(std::upper_bound(ticks.begin() + 1, ticks.end(), least * 1.0001));
    const auto end =
        std::min(ticks.end(), std::next(std::lower_bound(begin + 1, ticks.end(), most * 0.9999)));
    ticks = std::vector<double>(begin, end);
    if (ticks.size() <= room) break;
  }
  return ticks;
}

std::string draw(const Chart& chart) {
  Range across;
  Range up;
  for (const Line& line : chart.lines) {
    for (const Point& point : line.points) {
      if (!is_shown(point)) continue;
      across.take(point.x);
      for (const double value : {point.y, point.least, point.most}) up.take(value);
    }
  }
  Drawing drawing;
  if (across.most > 0) {
    const Axis x(places_of(chart, across), kPadding, kLeft, kWidth - kRight);
    const Axis y(log_ticks(up.least, up.most, kMaxTicks), 0, kHeight - kBottom, kTop);
    draw_frame(drawing, chart, x, y);
    draw_legend(drawing, chart);
    for (const Line& line : chart.lines) draw_line(drawing, line, x, y);
  }
  return std::move(drawing).finish();
}

}  // namespace ckpt::bench
