// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "tools/gpumigrate/local/state.h"

namespace ckpt::cli {
namespace {

class Processes : public ::testing::Test {
 protected:
  Processes() {
    std::string folder = (std::filesystem::temp_directory_path() / "gpumigrate-local-XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
  }
  ~Processes() override { std::filesystem::remove_all(folder_); }

  ProcessId start(const std::string& script, const std::string& marker) {
    auto process =
        start_daemon({{"/bin/sh", "-c", script}, environment_with({marker}), folder_ + "/out.log"});
    EXPECT_TRUE(process.has_value());
    return process ? *process : ProcessId{};
  }
  std::string marker() const { return "GPUMIGRATE_TEST_MARK=" + folder_; }

  std::string folder_;
};

TEST_F(Processes, ADaemonHasItsOwnSessionAndInheritsNoDescriptors) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  // The descriptor is not close-on-exec, and the program uses its number for nothing else.
  const UniqueFd kept(::fcntl(null.get(), F_DUPFD, 100));
  const ProcessId process =
      start("ls /proc/self/fd | wc -l; readlink /proc/self/fd/0; exec sleep 1000", marker());
  ASSERT_NE(process.pid, 0);
  EXPECT_EQ(::getsid(process.pid), process.pid);
  ASSERT_TRUE(is_alive(process));
  EXPECT_FALSE(
      std::filesystem::exists("/proc/" + std::to_string(process.pid) + "/fd/" + std::to_string(kept.get())));
  ASSERT_TRUE(end_all({process}, SIGTERM, std::chrono::seconds(10)).has_value());
  EXPECT_FALSE(is_alive(process));
}

TEST_F(Processes, AMissingProgramIsAnImmediateError) {
  const auto process = start_daemon({{"/nonexistent/program"}, {}, folder_ + "/out.log"});
  ASSERT_FALSE(process.has_value());
  EXPECT_NE(process.error().message().find("/nonexistent/program"), std::string::npos);
}

TEST_F(Processes, AProcessThatIgnoresTheSignalIsKilled) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const ProcessId process =
      start("trap '' TERM; echo ready > " + fifo + "; while :; do sleep 1000; done", marker());
  char line[16];
  const UniqueFd file(::open(fifo.c_str(), O_RDONLY));
  ASSERT_GT(::read(file.get(), line, sizeof line), 0);
  ASSERT_TRUE(end_all({process}, SIGTERM, std::chrono::milliseconds(50)).has_value());
  EXPECT_FALSE(is_alive(process));
  EXPECT_TRUE(end_all(find_by_environment(marker()), SIGKILL, std::chrono::seconds(5)).has_value());
}

TEST_F(Processes, AnEarlyReturnOfTheWaitKeepsTheGracePeriod) {
  const std::string ready = folder_ + "/ready";
  const std::string order = folder_ + "/order";
  ASSERT_EQ(::mkfifo(ready.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(order.c_str(), 0600), 0);
  const ProcessId process = start("trap '' TERM; exec 3<> " + order + "; echo ready > " + ready +
                                      "; read line <&3; : > " + folder_ + "/ended",
                                  marker());
  char line[16];
  const UniqueFd file(::open(ready.c_str(), O_RDONLY));
  ASSERT_GT(::read(file.get(), line, sizeof line), 0);
  int calls = 0;
  const WaitReadable wait = [&](int descriptor, std::chrono::milliseconds time) -> Result<void> {
    if (++calls < 3) return ok();
    if (calls == 3) {
      const UniqueFd end(::open(order.c_str(), O_WRONLY));
      EXPECT_EQ(::write(end.get(), "end\n", 4), 4);
    }
    pollfd poll{descriptor, POLLIN, 0};
    ::poll(&poll, 1, static_cast<int>(time.count()));
    return ok();
  };
  ASSERT_TRUE(end_all({process}, SIGTERM, std::chrono::seconds(30), wait).has_value());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/ended"));
}

TEST_F(Processes, ProcessesAreFoundByTheirMark) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  // The shell runs no exec and starts no child: during an exec the environment of a process reads as empty.
  const ProcessId process = start("read line < " + fifo, marker());
  const ProcessId other = start("read line < " + fifo, "GPUMIGRATE_TEST_MARK=" + folder_ + "x");
  EXPECT_EQ(find_by_environment(marker()), std::vector<ProcessId>{process});
  ASSERT_TRUE(end_all({process, other}, SIGTERM, std::chrono::seconds(10)).has_value());
  EXPECT_TRUE(find_by_environment(marker()).empty());
}

TEST_F(Processes, AReusedPidIsNotAlive) {
  ProcessId self = identify(::getpid());
  EXPECT_TRUE(is_alive(self));
  self.start++;
  EXPECT_FALSE(is_alive(self));
  EXPECT_FALSE(is_alive({}));
}

TEST_F(Processes, AddedVariablesReplaceExistingVariables) {
  ::setenv("GPUMIGRATE_TEST_A", "old", 1);
  const auto environment = environment_with({"GPUMIGRATE_TEST_A=new"});
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "GPUMIGRATE_TEST_A=new"), 1);
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "GPUMIGRATE_TEST_A=old"), 0);
}

TEST_F(Processes, LocalStateIsStoredAndLoaded) {
  ASSERT_FALSE(load_local(folder_)->has_value());
  LocalState state;
  state.gpus = 3;
  state.gpu_memory = "1GiB";
  state.api_address = "127.0.0.1:1";
  state.coordinator = {12, 34};
  state.nodes = {{"node-a", {5, 6}}};
  ASSERT_TRUE(save_local(folder_, state).has_value());
  const auto loaded = load_local(folder_);
  ASSERT_TRUE(loaded.has_value() && loaded->has_value());
  EXPECT_EQ((*loaded)->gpus, 3);
  EXPECT_EQ((*loaded)->coordinator, state.coordinator);
  EXPECT_EQ((*loaded)->nodes.at(0).process, state.nodes[0].process);
  ASSERT_TRUE(write_file_durably(folder_ + "/local.json", "{\"gpus\": \"x\"}").has_value());
  EXPECT_EQ(load_local(folder_).error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckpt::cli
