// SPDX-License-Identifier: Apache-2.0
// Tests of checkpoints by the software driver, beyond the known behavior of the real one. They cover the
// traces that it leaves in the process, its refusals, and a restore on other devices. A dump must find no
// trace of the driver.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/conformance/checkpoint/checkpoint_support.h"

namespace conformance {
namespace {

bool has_secret_memory() {
  const int fd = static_cast<int>(::syscall(SYS_memfd_secret, O_CLOEXEC));
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

class CudasimCheckpointTest : public CheckpointTest {
 protected:
  // Returns the traces that a dump must not find: descriptors of sockets and of unnamed memory, and shared
  // mappings.
  [[nodiscard]] std::vector<std::string> remains() const {
    std::vector<std::string> found;
    const std::string process = "/proc/" + std::to_string(pid());
    DIR* folder = ::opendir((process + "/fd").c_str());
    while (const dirent* entry = ::readdir(folder)) {
      char target[256];
      const ssize_t length = ::readlinkat(::dirfd(folder), entry->d_name, target, sizeof target);
      const std::string text(target, length > 0 ? static_cast<std::size_t>(length) : 0);
      if (text == listener()) continue;  // the listener stays open during a checkpoint (see listener())
      const bool own = std::string(entry->d_name) == "3";  // true for the socket of the test
      if (!own && (text.rfind("socket:", 0) == 0 || text.rfind("/memfd:", 0) == 0 ||
                   text.find("/device") != std::string::npos)) {
        found.push_back(text);
      }
    }
    ::closedir(folder);
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:conformance") != std::string::npos) continue;  // memory of the job itself
      const std::size_t rights = line.find(' ') + 1;
      if (line[rights + 3] == 's' || line.find("memfd") != std::string::npos) found.push_back(line);
    }
    return found;
  }
  // Returns "socket:[INODE]" of the listener that has the process's number in its name.
  [[nodiscard]] std::string listener() const {
    std::ifstream sockets("/proc/net/unix");
    const std::string ending = "-" + std::to_string(pid()) + "@";  // the kernel writes the terminating zero
                                                                   // as @
    for (std::string line; std::getline(sockets, line);) {
      const std::size_t name = line.find(" @cuda-uvmfd-");
      if (name == std::string::npos || !line.ends_with(ending)) continue;
      const std::size_t inode = line.rfind(' ', name - 1) + 1;
      return "socket:[" + line.substr(inode, name - inode) + "]";
    }
    return "";
  }
  [[nodiscard]] std::string forked_child() const {
    const std::string task = "/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid());
    std::ifstream children(task + "/children");
    std::string child;
    children >> child;
    return child;
  }
  // Returns the number of descriptors and mappings of the device.
  static int device_files(const std::string& process) {
    int found = 0;
    for (const auto& item : std::filesystem::directory_iterator("/proc/" + process + "/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(item.path(), gone) == "/secretmem (deleted)") ++found;
    }
    std::ifstream maps("/proc/" + process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/secretmem") != std::string::npos) ++found;
    }
    return found;
  }
  static std::string joined(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += line + "\n";
    return out;
  }
};

TEST_F(CudasimCheckpointTest, ACheckpointLeavesNoDriverResourcesInTheProgram) {
  EXPECT_FALSE(remains().empty());
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  EXPECT_EQ("", joined(remains()));
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CudasimCheckpointTest, TheListenerSurvivesACheckpoint) {
  const std::string before = listener();
  EXPECT_NE("", before);
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  EXPECT_EQ(before, listener());
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  EXPECT_EQ(before, listener());
}

TEST_F(CudasimCheckpointTest, ACheckpointClosesTheDeviceInTheProgramButNotInForkedChildren) {
  if (!has_secret_memory()) GTEST_SKIP() << "this kernel has no secret memory";
  const std::string own = std::to_string(pid());
  EXPECT_EQ(2, device_files(own));
  ASSERT_TRUE(job_->does("fork"));
  const std::string child = forked_child();
  EXPECT_EQ(2, device_files(child));
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  EXPECT_EQ(0, device_files(own));
  EXPECT_EQ(2, device_files(child));
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  EXPECT_EQ(2, device_files(own));
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CudasimCheckpointTest, ACheckpointUnderAProfilerIsRefused) {
  ::setenv("CUDA_INJECTION64_PATH", INJECTION, 1);
  job_ = std::make_unique<CheckpointJob>();
  ::unsetenv("CUDA_INJECTION64_PATH");
  ASSERT_OK(lock());
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, checkpoint());
  EXPECT_EQ(CU_PROCESS_STATE_LOCKED, state());
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CudasimCheckpointTest, WritesToPinnedMemoryAreNotLost) {
  ASSERT_TRUE(job_->does("count"));
  for (int i = 0; i < 10; i++) {
    ASSERT_OK(lock());
    ASSERT_OK(checkpoint());
    ASSERT_OK(restore());
    ASSERT_OK(unlock());
  }
  EXPECT_TRUE(job_->does("stop counting"));
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CudasimCheckpointTest, ACheckpointWithOpenExportsIsRefused) {
  ASSERT_TRUE(job_->does("make region"));
  job_->child.send_text("export");
  int fd = -1;
  ASSERT_EQ("ok", job_->child.receive_text(&fd));
  ASSERT_OK(lock());
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, checkpoint());
  EXPECT_EQ(CU_PROCESS_STATE_LOCKED, state());
  ASSERT_OK(unlock());
  ASSERT_TRUE(job_->does("close export"));
  ASSERT_OK(lock());
  EXPECT_OK(checkpoint());  // open descriptors of this process do not matter
  EXPECT_OK(restore());
  EXPECT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
  ::close(fd);
}

TEST_F(CudasimCheckpointTest, ACheckpointWithImportedMemoryIsRefused) {
  Mapped memory(4 * kMiB, true);
  EXPECT_OK(api().cuMemsetD8_v2(memory.address, 1, memory.bytes));
  int fd = -1;
  ASSERT_OK(
      api().cuMemExportToShareableHandle(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  job_->child.send_text("import", fd);
  ::close(fd);
  ASSERT_EQ("ok", job_->child.receive_text());
  ASSERT_OK(lock());
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, checkpoint());
  ASSERT_OK(unlock());
  ASSERT_TRUE(job_->does("release"));
  ASSERT_OK(lock());
  EXPECT_OK(checkpoint());
  EXPECT_OK(restore());
  EXPECT_OK(unlock());
}

TEST_F(CudasimCheckpointTest, InvalidGpuPairsAndReservedFieldsAreRefused) {
  CUcheckpointLockArgs arguments{};
  arguments.reserved1[3] = 1;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuCheckpointProcessLock(pid(), &arguments));
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  std::vector<CUcheckpointGpuPair> pairs = exchanged_devices();
  pairs[1].newUuid = pairs[0].newUuid;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, restore(pairs));
  pairs[1].newUuid.bytes[0] ^= 1;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, restore(pairs));
  EXPECT_OK(restore(exchanged_devices()));
  EXPECT_OK(unlock());
}

}  // namespace
}  // namespace conformance
