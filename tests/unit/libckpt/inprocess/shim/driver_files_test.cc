// SPDX-License-Identifier: Apache-2.0
// Tests that a forked child has none of the driver's files. Memory files with the same names represent the
// driver's files.
#include "libckpt/inprocess/shim/core/driver_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace ckpt::shim {
namespace {

constexpr std::size_t kBytes = 8192;

struct MappedFile {
  explicit MappedFile(const char* name) : fd(::memfd_create(name, 0)) {
    EXPECT_EQ(::ftruncate(fd, kBytes), 0);
    at = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    at[0] = 7;
  }
  int fd;
  char* at;
};

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

bool maps_name(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

// Runs `check` in a child. Returns 0 if the check passed; -SIGSEGV if this signal killed the child.
template <class Check>
int in_child(const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class DriverFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("CKPT_DRIVER_FILES", "/memfd:first,/memfd:drv", 1);
    drop_driver_files_in_children();
  }
};

TEST_F(DriverFiles, AForkedChildHasNoDriverDescriptorsOrMappings) {
  const MappedFile driver("drv0");
  const MappedFile other_driver("first");
  const MappedFile own("own-drv");
  EXPECT_EQ(in_child([&] {
              if (is_open(driver.fd) || is_open(other_driver.fd)) return 1;
              if (maps_name("/memfd:drv") || maps_name("/memfd:first")) return 2;
              if (!is_open(own.fd) || own.at[0] != 7) return 3;
              return 0;
            }),
            0);
  EXPECT_TRUE(is_open(driver.fd));
  EXPECT_EQ(driver.at[0], 7);
}

TEST_F(DriverFiles, FormerDriverMappingsStayInaccessibleAndReserved) {
  const MappedFile driver("drv1");
  EXPECT_EQ(in_child([&] {
              ::signal(SIGSEGV, SIG_DFL);
              return driver.at[0] == 7 ? 1 : 2;
            }),
            -SIGSEGV);
  EXPECT_EQ(in_child([&] {
              void* again = ::mmap(driver.at, kBytes, PROT_READ,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
              return again == MAP_FAILED ? 0 : 1;
            }),
            0);
}

TEST_F(DriverFiles, ManyDescriptorsAreAllClosed) {
  const MappedFile driver("drv2");
  constexpr int kMany = 600;
  int copies[kMany];
  for (int& copy : copies) copy = ::dup(driver.fd);
  EXPECT_EQ(in_child([&] {
              for (const int copy : copies) {
                if (is_open(copy)) return 1;
              }
              return 0;
            }),
            0);
  for (const int copy : copies) ::close(copy);
}

}  // namespace
}  // namespace ckpt::shim
