// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/loop_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <future>

namespace ckpt::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = StallDetector::Verdict;

struct Judged {
  StallDetector::Limits limits{milliseconds(500), seconds(10), seconds(60)};
  StallDetector::Clock::time_point now{};
  StallDetector detector{limits, now};

  // Polls for `time` without a heartbeat, and returns the last verdict.
  Verdict look_for(milliseconds time, std::uint64_t beats) {
    Verdict verdict = Verdict::kRuns;
    for (milliseconds passed{0}; passed < time; passed += limits.check_interval) {
      now += limits.check_interval;
      verdict = detector.check(now, beats);
    }
    return verdict;
  }
};

TEST(StallDetector, LoopWithHeartbeatsIsReportedAsRunning) {
  Judged judged;
  for (std::uint64_t beats = 1; beats < 1000; ++beats)
    ASSERT_EQ(judged.look_for(milliseconds(500), beats), Verdict::kRuns);
}

TEST(StallDetector, StallIsReportedOnceAndThenAsTooLong) {
  Judged judged;
  EXPECT_EQ(judged.look_for(milliseconds(500), 1), Verdict::kRuns);
  EXPECT_EQ(judged.look_for(milliseconds(9500), 1), Verdict::kRuns);
  EXPECT_EQ(judged.look_for(milliseconds(500), 1), Verdict::kStalled);
  EXPECT_EQ(judged.detector.stood_for(), seconds(10));
  EXPECT_EQ(judged.look_for(milliseconds(49500), 1), Verdict::kReported);
  EXPECT_EQ(judged.look_for(milliseconds(500), 1), Verdict::kTooLong);
}

TEST(StallDetector, NextStallIsReportedAgain) {
  Judged judged;
  (void)judged.look_for(milliseconds(500), 1);
  EXPECT_EQ(judged.look_for(seconds(10), 1), Verdict::kStalled);
  EXPECT_EQ(judged.look_for(milliseconds(500), 2), Verdict::kRuns);
  EXPECT_EQ(judged.look_for(seconds(10), 2), Verdict::kStalled);
}

// Examples are a closed laptop lid, a debugger, and a hypervisor that withholds the processors.
TEST(StallDetector, StoppedProcessIsNotReportedAsStalled) {
  Judged judged;
  (void)judged.look_for(milliseconds(500), 1);
  judged.now += std::chrono::hours(8);
  EXPECT_EQ(judged.detector.check(judged.now, 1), Verdict::kRuns);
  EXPECT_EQ(judged.detector.stood_for(), seconds(1));
}

struct Reports {
  std::promise<std::string> stalled;
  std::promise<milliseconds> too_long;
  bool told = false;

  LoopWatch::Settings settings(StallDetector::Limits limits) {
    LoopWatch::Settings settings;
    settings.limits = limits;
    settings.stalled = [this](milliseconds, const std::string& where) { stalled.set_value(where); };
    settings.too_long = [this](milliseconds stood_for) {
      if (!std::exchange(told, true)) too_long.set_value(stood_for);
    };
    return settings;
  }
};

TEST(LoopWatch, ReportNamesTheLocationOfTheStall) {
  asio::io_context io(1);
  Reports reports;
  auto watch =
      LoopWatch::create(io, reports.settings({milliseconds(10), milliseconds(100), milliseconds(300)}));
  ASSERT_TRUE(watch.has_value()) << watch.error().to_string();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::string where;
  milliseconds stood_for{0};
  std::thread helper([&] {
    where = reports.stalled.get_future().get();
    stood_for = reports.too_long.get_future().get();
    char byte = 0;
    EXPECT_EQ(::write(ends[1], &byte, 1), 1);
  });
  asio::post(io, [&] {
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);  // blocks until both stalls were reported
    io.stop();
  });
  io.run();
  helper.join();
  EXPECT_NE(where.find("system call 0 "), std::string::npos) << where;  // system call 0 is read
  EXPECT_NE(where.find("unit_control"), std::string::npos) << where;    // a stack frame of this test
  EXPECT_GE(stood_for, milliseconds(300));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace ckpt::control
