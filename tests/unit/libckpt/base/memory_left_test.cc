// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/machine/memory_left.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMachine = std::uint64_t{1000} << 10;  // MemAvailable in the meminfo text below

class MemoryLeft : public ::testing::Test {
 protected:
  MemoryLeft() {
    std::string path = (fs::temp_directory_path() / "ckpt-memory-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
    write("proc/meminfo", "MemTotal:  5000 kB\nMemAvailable:    1000 kB\nBuffers: 7 kB\n");
  }
  ~MemoryLeft() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }
  [[nodiscard]] std::uint64_t left() const { return memory_left(folder_ + "/proc", folder_ + "/groups"); }

 private:
  std::string folder_;
};

TEST_F(MemoryLeft, LimitIsTheAvailableMemoryOfTheMachine) {
  EXPECT_EQ(left(), kMachine);
}

TEST_F(MemoryLeft, LimitIsTheTightestControlGroup) {
  write("proc/self/cgroup", "4:memory:/old\n0::/a/b\n");
  write("groups/a/b/memory.max", "max\n");
  write("groups/a/b/memory.current", "4000\n");
  EXPECT_EQ(left(), kMachine) << "a group without a limit";
  write("groups/a/memory.max", "5000\n");
  write("groups/a/memory.current", "4500\n");
  EXPECT_EQ(left(), 500u) << "the one above";
  write("groups/a/b/memory.max", "4100\n");
  EXPECT_EQ(left(), 100u);
  write("groups/a/b/memory.current", "4200\n");
  EXPECT_EQ(left(), 0u) << "over its limit already";
}

TEST_F(MemoryLeft, UnreadableLimitIsUnknown) {
  EXPECT_EQ(memory_left("/nowhere", "/nowhere"), kMemoryUnknown);
}

TEST_F(MemoryLeft, MalformedLimitIsIgnored) {
  write("proc/self/cgroup", "0::/a");
  write("groups/a/memory.max", "-5\n");
  write("groups/a/memory.current", "x\n");
  EXPECT_EQ(left(), kMachine);
}

}  // namespace
}  // namespace ckpt
