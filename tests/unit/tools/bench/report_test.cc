// SPDX-License-Identifier: Apache-2.0
// Tests figures, goals, and the three output forms of a report.
#include "tools/bench/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ckpt::bench {
namespace {

Facts some_facts() {
  Facts facts;
  facts.command = "gpumigrate-bench all";
  facts.cpu = "a processor";
  facts.cores = 2;
  return facts;
}

Report some_report() {
  Report report(some_facts());
  Section& section = report.add_section("copy", "A copy beside a copy");
  section.set_columns({{"rate", "GB/s"}, {"ratio", ""}});
  const double rates[] = {3, 1, 2};
  section.add_row("ours", {spread_of(rates), single(0.5)});
  section.add_row("theirs", {single(4)});
  section.add_goal("ours / theirs", 0.5, Relation::kAtLeast, 0.4);
  section.add_goal("cost", 120, Relation::kAtMost, 100, "ns");
  section.add_note("a note");
  return report;
}

TEST(ReportTest, SpreadContainsTheMedianAndBothExtremes) {
  const double odd[] = {5, 1, 3};
  EXPECT_EQ(spread_of(odd).median, 3);
  EXPECT_EQ(spread_of(odd).min, 1);
  EXPECT_EQ(spread_of(odd).max, 5);
  const double even[] = {4, 1, 3, 2};
  EXPECT_EQ(spread_of(even).median, 2.5);
  EXPECT_EQ(spread_of(even).count, 4u);
  EXPECT_EQ(spread_of({}).count, 0u);
}

TEST(ReportTest, RatiosAreComputedPairwise) {
  const double ours[] = {1, 4}, theirs[] = {2, 4, 9};
  EXPECT_EQ(ratios_of(ours, theirs), (std::vector<double>{0.5, 1}));
  const double nothing[] = {0};
  EXPECT_EQ(ratios_of(ours, nothing), (std::vector<double>{0}));
}

TEST(ReportTest, GoalIsMetAtItsBound) {
  EXPECT_TRUE((Goal{"a", 1, Relation::kAtLeast, 1, ""}.passed()));
  EXPECT_FALSE((Goal{"a", 0.99, Relation::kAtLeast, 1, ""}.passed()));
  EXPECT_TRUE((Goal{"a", 1, Relation::kAtMost, 1, ""}.passed()));
  EXPECT_FALSE((Goal{"a", 1.01, Relation::kAtMost, 1, ""}.passed()));
}

TEST(ReportTest, JsonContainsEveryValueAndVerdict) {
  const Report report = some_report();
  EXPECT_FALSE(report.all_goals_passed());
  EXPECT_FALSE(report.any_failed());
  const nlohmann::json section = report.to_json()["sections"][0];
  EXPECT_EQ(section["rows"][0]["values"]["rate"]["median"], 2);
  EXPECT_EQ(section["rows"][0]["values"]["rate"]["runs"], 3);
  EXPECT_FALSE(section["rows"][1]["values"].contains("ratio")) << "it was not measured";
  EXPECT_EQ(section["goals"][0]["passed"], true);
  EXPECT_EQ(section["goals"][1]["passed"], false);
  EXPECT_EQ(section["goals"][1]["relation"], "<=");
  EXPECT_TRUE(section["failed"].is_null());
}

TEST(ReportTest, FailureIsShownInItsSection) {
  Report report = some_report();
  report.add_failure("copy", "", Error(ErrorCode::kIo, "the disk is gone"));
  report.add_failure("other", "Another", Error(ErrorCode::kIo, "so is this"));
  EXPECT_TRUE(report.any_failed());
  ASSERT_EQ(report.sections().size(), 2u);
  EXPECT_NE(report.find_section("copy")->failed().find("the disk is gone"), std::string::npos);
  EXPECT_EQ(report.find_section("other")->measures(), "Another");
}

TEST(ReportTest, MarkdownContainsATableWithGoals) {
  const std::string text = some_report().to_markdown();
  EXPECT_NE(text.find("|  | rate, GB/s | ratio |\n|---|---|---|\n| ours | 2 (1–3) | 0.5 |\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("- ours / theirs: 0.5 (goal ≥ 0.4) passed"), std::string::npos);
  EXPECT_NE(text.find("- cost: 120 ns (goal ≤ 100) missed"), std::string::npos);
}

TEST(ReportTest, CellsAreFoundByName) {
  const Report report = some_report();
  const Section& section = *report.find_section("copy");
  EXPECT_EQ(section.find("theirs", "rate")->median, 4);
  EXPECT_FALSE(section.find("theirs", "ratio"));
  EXPECT_FALSE(section.find("nobody", "rate"));
  EXPECT_EQ(report.find_section("nothing"), nullptr);
}

TEST(ReportTest, NumbersArePrintedWithThreeDigits) {
  EXPECT_EQ(format_number(0.91234), "0.912");
  EXPECT_EQ(format_number(12.345), "12.3");
  EXPECT_EQ(format_number(123.45), "123.5");
  EXPECT_EQ(format_number(12345.6), "12346");
  EXPECT_EQ(format_number(0), "0");
}

}  // namespace
}  // namespace ckpt::bench
