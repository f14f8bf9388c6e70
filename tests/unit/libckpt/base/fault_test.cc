// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/fault.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    std::string path = (fs::temp_directory_path() / "ckpt-fault-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~FaultTest() override { fs::remove_all(folder_); }

  void arm(const std::string& name, const std::string& text = "") {
    std::ofstream(folder_ + "/" + name) << text;
  }

  // Reaches kSourcePaused (103) in a child and returns the child's wait status. WUNTRACED also reports a
  // stopped child.
  int reach() {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("CKPT_FAULT_DIR", folder_.c_str(), 1);
      set_fault_role("agent.a");
      fault_point(FaultPoint::kSourcePaused);
      ::_exit(7);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    if (WIFSTOPPED(status)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    return status;
  }

  std::string folder_;
};

TEST_F(FaultTest, ArmedPointKillsTheProcessOnce) {
  arm("agent.a.103");
  EXPECT_EQ(WTERMSIG(reach()), SIGKILL);
  EXPECT_FALSE(fs::exists(folder_ + "/agent.a.103"));
  EXPECT_EQ(WEXITSTATUS(reach()), 7) << "the restarted process passes";
}

// The kernel delivers a process-directed signal to any thread, and the other threads run on for a moment.
TEST_F(FaultTest, ThreadThatReachesAStopPointDoesNotContinue) {
  for (int turn = 0; turn < 20; ++turn) {
    arm("agent.a.103", "stop");
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("CKPT_FAULT_DIR", folder_.c_str(), 1);
      set_fault_role("agent.a");
      std::thread([&ends] {
        fault_point(FaultPoint::kSourcePaused);
        (void)!::write(ends[1], "x", 1);
      }).join();
      ::_exit(7);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status));
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), -1) << "the thread went on";
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST_F(FaultTest, OtherFaultPointsAndRolesHaveNoEffect) {
  arm("agent.a.104");
  arm("agent.b.103");
  EXPECT_EQ(WEXITSTATUS(reach()), 7);
  EXPECT_TRUE(fs::exists(folder_ + "/agent.a.104"));
  EXPECT_TRUE(fs::exists(folder_ + "/agent.b.103"));
}

TEST_F(FaultTest, ArmedFileCanRequestAStop) {
  arm("agent.a.103", "stop");
  const int status = reach();
  EXPECT_TRUE(WIFSTOPPED(status));
}

TEST_F(FaultTest, NumbersAndNamesAreUnique) {
  std::set<int> numbers;
  std::set<std::string> names;
  int count = 0;
#define CKPT_FAULT_POINT(number, name)           \
  numbers.insert(number);                        \
  names.insert(#name);                           \
  EXPECT_EQ(to_string(FaultPoint::name), #name); \
  ++count;
#include "libckpt/base/fault_points.def"
#undef CKPT_FAULT_POINT
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
}

}  // namespace
}  // namespace ckpt
