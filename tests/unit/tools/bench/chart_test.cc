// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace ckpt::bench {
namespace {

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

Chart chart() {
  Chart chart;
  chart.title = "a < b & c";
  chart.x_label = "share";
  chart.y_label = "ms";
  chart.lines = {{"measured", "#0072b2", false, {{1, 10, 8, 12}, {2, 20, 20, 20}, {4, 40, 30, 50}}},
                 {"bound", "#555555", true, {{1, 5, 5, 5}, {2, 6, 6, 6}}}};
  return chart;
}

TEST(Chart, EveryPointIsThere) {
  const std::string svg = draw(chart());
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(svg, "<polyline"), 2u);
  EXPECT_EQ(count_of(svg, "<circle"), 3u + 1u);  // and one in the legend
  EXPECT_EQ(count_of(svg, ">4</text>"), 1u);     // a tick where the points are
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Chart, ValuesThatCannotBeDrawnAreLeftOut) {
  Chart odd = chart();
  odd.lines[0].points.push_back({0, 10, 10, 10});
  odd.lines[0].points.push_back({8, -1, -1, -1});
  odd.lines[0].points.push_back({8, std::numeric_limits<double>::quiet_NaN(), 0, 0});
  EXPECT_EQ(draw(odd), draw(chart()));
  EXPECT_TRUE(draw(Chart{}).ends_with("</svg>\n"));
}

TEST(Chart, TicksCoverTheValuesWithinTheirLimit) {
  for (const auto& [least, most] :
       {std::pair{1.0, 1.0}, {0.25, 4.0}, {10.0, 1000.0}, {33.0, 1051.0}, {0.01, 1e6}}) {
    const std::vector<double> ticks = log_ticks(least, most, 9);
    ASSERT_GE(ticks.size(), 2u) << least;
    EXPECT_LE(ticks.size(), 10u) << least;
    EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
    EXPECT_LE(ticks.front(), least * 1.001);
    EXPECT_GE(ticks.back(), most * 0.999);
  }
}

}  // namespace
}  // namespace ckpt::bench
