// SPDX-License-Identifier: Apache-2.0
// Tests of thread settings that CRIU does not save. They are read from one process and applied to another.
#include "agent/host_process/processes/task_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <fstream>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kSliceNs = 7'000'000;
constexpr int kPriority = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 6);

std::string file_of(pid_t pid, const std::string& name) {
  return *read_file("/proc/" + std::to_string(pid) + "/" + name, 4096);
}

int last_processor() {
  cpu_set_t own;
  EXPECT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
  int last = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) last = CPU_ISSET(i, &own) ? i : last;
  return last;
}

// The kernel's struct sched_attr.
struct Scheduling {
  std::uint32_t size = 48;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

std::uint64_t slice_of_process(pid_t pid) {
  Scheduling found;
  EXPECT_EQ(::syscall(SYS_sched_getattr, pid, &found, sizeof found, 0), 0);
  return found.runtime;
}

// Lets a child lead a session, which has a nice value of its own.
void lead_session() {
  (void)::setsid();
}

void change_own() {
  lead_session();
  std::ofstream("/proc/self/autogroup") << "7";
  Scheduling scheduling;
  scheduling.runtime = kSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &scheduling, 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last_processor(), &one);
  (void)!::sched_setaffinity(0, sizeof one, &one);
  ::prctl(PR_SET_TIMERSLACK, 123456);
  ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, kPriority);
  std::ofstream("/proc/self/coredump_filter") << "0x7";
}

// Changes `settings` so that they belong to the process `to`.
void rename(TaskSettings& settings, pid_t to) {
  for (ThreadSettings& thread : settings.threads) thread.thread = static_cast<std::uint32_t>(to);
  for (ProcessSettings& process : settings.processes) process.process = static_cast<std::uint32_t>(to);
}

TEST(TaskSettings, SettingsAreTransferredToTheRestoredProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, for another process's timer slack";
  const Child source(change_own);
  const Child target(lead_session);
  const TemporaryFolder images;
  ASSERT_TRUE(save_settings(source.pid(), images.path()));
  auto saved = saved_settings(images.path());
  ASSERT_TRUE(saved.has_value());
  TaskSettings settings = *std::move(saved);
  ASSERT_EQ(settings.threads.size(), 1u);
  rename(settings, target.pid());
  ASSERT_TRUE(apply_settings(target.pid(), settings));
  EXPECT_EQ(file_of(target.pid(), "timerslack_ns"), "123456\n");
  EXPECT_EQ(file_of(target.pid(), "coredump_filter"), "00000007\n");
  EXPECT_EQ(slice_of_process(target.pid()), slice_of_process(source.pid()));
  if (::access("/proc/self/autogroup", F_OK) == 0)
    EXPECT_THAT(file_of(target.pid(), "autogroup"), ::testing::EndsWith("nice 7\n"));
  EXPECT_EQ(::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, target.pid()), kPriority);
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(target.pid(), sizeof mask, &mask), 0);
  EXPECT_EQ(CPU_COUNT(&mask), 1);
  EXPECT_TRUE(CPU_ISSET(last_processor(), &mask));
}

TEST(TaskSettings, OrdinaryProcessHasNoSettings) {
  const Child source([] {});
  const TemporaryFolder images;
  const auto found = settings_of(source.pid());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->threads.empty());
  EXPECT_TRUE(found->processes.empty());
  ASSERT_TRUE(save_settings(source.pid(), images.path()));
  EXPECT_TRUE(saved_settings(images.path()).has_value());
}

TEST(TaskSettings, ProcessorsThatTheTargetLacksAreReplacedAndTheRemarkNamesThem) {
  const Child target([] {});
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(target.pid(), sizeof before, &before), 0);
  TaskSettings settings;
  ThreadSettings& thread = settings.threads.emplace_back();
  thread.thread = static_cast<std::uint32_t>(target.pid());
  thread.processors.assign(kMaxProcessorWords, 0);
  thread.processors.back() = 1;
  cpu_set_t after;
  auto remarks = apply_settings(target.pid(), settings);
  ASSERT_TRUE(remarks.has_value());
  ASSERT_EQ(remarks->size(), 1u);
  EXPECT_THAT(remarks->front(),
              ::testing::HasSubstr("1 thread was bound to processors that this node lacks (8128)"));
  ASSERT_EQ(::sched_getaffinity(target.pid(), sizeof after, &after), 0);
  EXPECT_EQ(CPU_COUNT(&after), 1) << "as many as at the source";
  std::size_t first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  thread.processors.at(first / 64) |= std::uint64_t{1} << first % 64;
  ASSERT_TRUE(apply_settings(target.pid(), settings));
  ASSERT_EQ(::sched_getaffinity(target.pid(), sizeof after, &after), 0);
  EXPECT_EQ(CPU_COUNT(&after), std::min(2, CPU_COUNT(&before)));
  EXPECT_TRUE(CPU_ISSET(first, &after));
  thread.processors.back() = 0;
  remarks = apply_settings(target.pid(), settings);
  ASSERT_TRUE(remarks.has_value());
  EXPECT_TRUE(remarks->empty()) << "the target has all of them";
  thread.all_processors = true;
  ASSERT_TRUE(apply_settings(target.pid(), settings));
  ASSERT_EQ(::sched_getaffinity(target.pid(), sizeof after, &after), 0);
  EXPECT_GE(CPU_COUNT(&after), CPU_COUNT(&before));
}

TEST(TaskSettings, RemarkOnManyProcessorsFitsIntoAReport) {
  const Child target([] {});
  TaskSettings settings;
  ThreadSettings& thread = settings.threads.emplace_back();
  thread.thread = static_cast<std::uint32_t>(target.pid());
  thread.processors.assign(kMaxProcessorWords, 0xaaaa'aaaa'aaaa'aaaa);
  const auto remarks = apply_settings(target.pid(), settings);
  ASSERT_TRUE(remarks.has_value());
  ASSERT_EQ(remarks->size(), 1u);
  EXPECT_LT(remarks->front().size(), 1000u);
  EXPECT_THAT(remarks->front(), ::testing::HasSubstr(", ...)"));
}

TEST(TaskSettings, MalformedSettingsAreRefused) {
  const TemporaryFolder images;
  std::ofstream(images / "task-settings.img") << "nothing";
  EXPECT_FALSE(saved_settings(images.path()).has_value());
}

TEST(TaskSettings, ValuesOutOfRangeAreRefused) {
  const TemporaryFolder images;
  const auto is_accepted = [&images](const TaskSettings& settings) {
    const auto bytes = wire::encode(settings);
    std::ofstream(images / "task-settings.img")
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return saved_settings(images.path()).has_value();
  };
  TaskSettings settings;
  settings.processes.emplace_back().session_nice = 19;
  settings.threads.emplace_back().processors.assign(kMaxProcessorWords, 1);
  EXPECT_TRUE(is_accepted(settings));
  settings.processes.front().session_nice = 20;
  EXPECT_FALSE(is_accepted(settings));
  settings.processes.clear();
  settings.threads.front().processors.push_back(1);
  EXPECT_FALSE(is_accepted(settings));
}

}  // namespace
}  // namespace ckpt::agent::host
