// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/command.h"

#include <gtest/gtest.h>

namespace ckpt::bench {
namespace {

constexpr Nanos kPatience = 60'000'000'000;

Command shell(const std::string& script) {
  return {{"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin"}};
}

TEST(Command, OutputAndExitCodeAreReturned) {
  const auto done = run_command(shell("echo out; echo err >&2; exit 3"), nullptr, kPatience);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(done->out, "out\n");
  EXPECT_EQ(done->err, "err\n");
}

TEST(Command, ASignalIsReportedAsAnExitCode) {
  const auto done = run_command(shell("kill -9 $$"), nullptr, kPatience);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->exit_code, 128 + 9);
}

TEST(Command, OutputLargerThanAPipeIsReturned) {
  const auto done =
      run_command(shell("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"), nullptr, kPatience);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->out.size(), 1'000'000u);
  EXPECT_EQ(done->err.size(), 1'000'000u);
}

TEST(Command, LinesAreReturnedAsWritten) {
  auto started = RunningCommand::start(shell("echo one; echo two; printf three; exec sleep 600"), nullptr);
  ASSERT_TRUE(started);
  RunningCommand& running = **started;
  const Nanos deadline = now_ns() + kPatience;
  EXPECT_EQ(*running.read_line(deadline), "one");
  EXPECT_EQ(*running.read_line(deadline), "two");
  // The rest of a line never arrives. The deadline ends the wait, and the object's destructor ends the
  // process.
  const auto rest = running.read_line(now_ns() + 1'000'000);
  ASSERT_FALSE(rest);
  EXPECT_EQ(rest.error().code(), ErrorCode::kTimedOut);
}

TEST(Command, EndOfTheOutputIsNotReturnedAsALine) {
  auto started = RunningCommand::start(shell("echo one"), nullptr);
  ASSERT_TRUE(started);
  const Nanos deadline = now_ns() + kPatience;
  EXPECT_TRUE((*started)->read_line(deadline)->has_value());
  EXPECT_FALSE((*started)->read_line(deadline)->has_value());
}

TEST(Command, AMissingProgramIsAnError) {
  EXPECT_FALSE(run_command({{"/no/such/program"}, {}}, nullptr, kPatience));
}

TEST(Command, AnInterruptEndsTheWaitAndIsDeliveredAtTheEnd) {
  EXPECT_EXIT(
      {
        auto interrupts = Interrupts::create();
        if (!interrupts) std::_Exit(1);
        const auto done =
            run_command(shell("kill -TERM $PPID; exec sleep 600"), interrupts->get(), kPatience);
        if (done || done.error().code() != ErrorCode::kAborted) std::_Exit(2);
        interrupts->reset();
        std::_Exit(3);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace ckpt::bench
