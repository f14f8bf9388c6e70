// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/report.h"

#include <gtest/gtest.h>

#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

constexpr Item kItem{"conformance", "Does it | behave", 10, nullptr};

Line line_with(Outcome outcome) {
  return {&kItem, {std::move(outcome), 1.5, ""}};
}

TEST(Outcome, AFailedPartFailsTheItem) {
  Outcome outcome;
  outcome.add("a", Status::kPassed);
  outcome.add("b", Status::kImpossible, "none");
  outcome.add("c", Status::kFailed, "bytes differ");
  outcome.sum_up();
  EXPECT_EQ(Status::kFailed, outcome.status);
  EXPECT_EQ("c failed: bytes differ; b not possible here: none", outcome.reason);
}

TEST(Outcome, ItemWithoutPossiblePartsIsNotReportedAsPassed) {
  Outcome outcome;
  outcome.add("a", Status::kImpossible, "none");
  outcome.sum_up();
  EXPECT_EQ(Status::kImpossible, outcome.status);
}

TEST(Outcome, OutcomeSurvivesJsonConversion) {
  Outcome outcome;
  outcome.figures["x"] = 1.5;
  outcome.add("a", Status::kFailed, "why");
  outcome.sum_up();
  const Outcome again = outcome_of(to_json(outcome));
  EXPECT_EQ(outcome.status, again.status);
  EXPECT_EQ(outcome.figures, again.figures);
  EXPECT_EQ("why", again.parts.at(0).reason);
}

TEST(Report, TheTableNamesEveryItemAndEscapesBars) {
  Outcome outcome;
  outcome.figures = {{"tests", 10}, {"passed", 9}, {"skipped", 1}, {"failed", 0}};
  outcome.reason = "one\nskipped";
  Report report;
  report.driver = "1 x GPU";
  report.lines.push_back(line_with(outcome));
  const std::string text = to_markdown(report);
  EXPECT_NE(std::string::npos,
            text.find("| Does it \\| behave | passed | 9 of 10 tests passed, 1 skipped | one skipped |"))
      << text;
  EXPECT_FALSE(any_failed(report));
}

TEST(Report, AnItemThatStoppedEarlyHasAReasonInsteadOfASummary) {
  Outcome outcome;
  outcome.status = Status::kFailed;
  outcome.reason = "killed";
  Report report;
  report.lines.push_back(line_with(outcome));
  EXPECT_TRUE(any_failed(report));
  EXPECT_NE(std::string::npos, text_of(report.lines[0]).find("killed"));
  EXPECT_FALSE(to_json(report).at("passed").get<bool>());
}

TEST(Commands, LastJsonObjectOfTheOutputIsFound) {
  auto object = last_object("step 1\n{\"digest\":\"a\"}\n{\"digest\":\"b\"}\nbye\n{broken\n");
  ASSERT_TRUE(object);
  EXPECT_EQ("b", object->at("digest").get<std::string>());
  EXPECT_FALSE(last_object("nothing\nhere\n"));
  EXPECT_FALSE(last_object(""));
}

}  // namespace
}  // namespace ckpt::gpu_check
