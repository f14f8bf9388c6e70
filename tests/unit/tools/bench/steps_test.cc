// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/steps.h"

#include <gtest/gtest.h>

namespace ckpt::bench {
namespace {

TEST(Steps, StepLinesOfTheExamplesAreParsed) {
  EXPECT_EQ(parse_step("step 12")->step, 12u);
  EXPECT_EQ(parse_step("request 7")->step, 7u);
  EXPECT_EQ(parse_step("step 12")->time, 0);
  const auto step = parse_step("step 50 loss 3.1416 at 1767225600.250000");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step, 50u);
  EXPECT_DOUBLE_EQ(step->time, 1767225600.25);
}

TEST(Steps, OtherLinesAreIgnored) {
  for (const char* line : {"", "ready", "step", "step ", "step x", "step 1x", "steps 3", "a step 4",
                           "step 99999999999999999999999", "{\"steps\":3}"})
    EXPECT_FALSE(parse_step(line)) << line;
}

TEST(Steps, ALogWithoutAFinalNewlineIsReadCompletely) {
  const auto steps = parse_steps("ready\nstep 1\n\nstep 2");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].step, 2u);
}

TEST(Steps, RateCountsTheStepsWithinTheInterval) {
  const std::vector<StepLine> steps = {{10, 100.0}, {20, 101.0}, {40, 102.0}, {100, 110.0}};
  EXPECT_DOUBLE_EQ(step_rate(steps, 100.5, 105), 20);
  EXPECT_DOUBLE_EQ(step_rate(steps, 0, 1e9), 9);
  EXPECT_EQ(step_rate(steps, 101.5, 105), 0);
  EXPECT_EQ(step_rate({}, 0, 1e9), 0);
  EXPECT_EQ(step_rate({{5, 2.0}, {4, 3.0}}, 0, 10), 0);
}

}  // namespace
}  // namespace ckpt::bench
