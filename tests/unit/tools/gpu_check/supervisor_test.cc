// SPDX-License-Identifier: Apache-2.0
// Tests items that hang, die and leave daemons behind. Each such item is reported, and all its processes are
// ended.
#include "tools/gpu_check/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ckpt::gpu_check {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/gpu-check-test-XXXXXX";
    setting_.work = ::mkdtemp(folder);
    auto supervisor = Supervisor::create();
    ASSERT_TRUE(supervisor);
    supervisor_.emplace(*std::move(supervisor));
  }
  void TearDown() override { std::filesystem::remove_all(setting_.work); }

  Setting setting_;
  std::optional<Supervisor> supervisor_;
};

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

Result<Outcome> succeed(const Setting&) {
  Outcome outcome;
  outcome.figures["answer"] = 42;
  outcome.add("one", Status::kPassed);
  outcome.add("two", Status::kImpossible, "no such thing");
  outcome.sum_up();
  return outcome;
}

Result<Outcome> err(const Setting&) {
  return Error(ErrorCode::kDevice, "the device is gone");
}

Result<Outcome> die(const Setting& setting) {
  std::ofstream(setting.work + "/some.log") << "of a job";
  std::puts("last words");
  std::fflush(stdout);
  ::raise(SIGKILL);
  sleep_for_ever();
}

// Starts a daemon in its own session, writes the daemon's pid to a file, and then hangs.
Result<Outcome> leave_daemon_and_hang(const Setting& setting) {
  if (::fork() == 0) {
    ::setsid();
    const pid_t daemon = ::fork();
    if (daemon == 0) sleep_for_ever();
    std::ofstream(setting.work + "/daemon") << daemon;
    ::_exit(0);
  }
  sleep_for_ever();
}

TEST_F(SupervisorTest, ResultsOfAnItemAreReturned) {
  const Item item{"fine", "?", 60, &succeed};
  const Ended ended = supervisor_->run(item, setting_, 60 * kSecond);
  EXPECT_EQ(Status::kPassed, ended.outcome.status);
  EXPECT_EQ("two not possible here: no such thing", ended.outcome.reason);
  EXPECT_EQ(42, ended.outcome.figures.at("answer").get<int>());
  ASSERT_EQ(2u, ended.outcome.parts.size());
  EXPECT_EQ(Status::kImpossible, ended.outcome.parts[1].status);
}

TEST_F(SupervisorTest, AnErrorIsReportedAsAFailure) {
  const Item item{"error", "?", 60, &err};
  const Ended ended = supervisor_->run(item, setting_, 60 * kSecond);
  EXPECT_EQ(Status::kFailed, ended.outcome.status);
  EXPECT_NE(std::string::npos, ended.outcome.reason.find("the device is gone"));
}

TEST_F(SupervisorTest, ACrashIsReportedAsAFailureWithTheLastOutput) {
  const Item item{"death", "?", 60, &die};
  const Ended ended = supervisor_->run(item, setting_, 60 * kSecond);
  EXPECT_EQ(Status::kFailed, ended.outcome.status);
  EXPECT_NE(std::string::npos, ended.outcome.reason.find("signal 9"));
  EXPECT_NE(std::string::npos, ended.output.find("last words"));
  EXPECT_NE(std::string::npos, ended.output.find("of a job"));
}

TEST_F(SupervisorTest, AHangEndsAtTheDeadlineAndLeavesNoProcess) {
  const Item item{"hang", "?", 1, &leave_daemon_and_hang};
  const Ended ended = supervisor_->run(item, setting_, kSecond);
  EXPECT_EQ(Status::kFailed, ended.outcome.status);
  EXPECT_NE(std::string::npos, ended.outcome.reason.find("killed"));
  std::ifstream file(setting_.work + "/hang/daemon");
  pid_t daemon = 0;
  ASSERT_TRUE(file >> daemon);
  EXPECT_EQ(-1, ::kill(daemon, 0));
  EXPECT_TRUE(supervisor_->end_all());
}

}  // namespace
}  // namespace ckpt::gpu_check
