// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class FdTest : public ::testing::Test {
 protected:
  FdTest() {
    std::string path = (fs::temp_directory_path() / "ckpt-base-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~FdTest() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FdTest, DurableWriteReplacesTheFileAndLeavesNoTemporaryFile) {
  const std::string path = folder_ + "/file";
  ASSERT_TRUE(write_file_durably(path, "first", 0640).has_value());
  ASSERT_TRUE(write_file_durably(path, "second").has_value());
  EXPECT_EQ(*read_file(path, 100), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FdTest, WriteErrorForAMissingFolderNamesTheFile) {
  const Result<void> written = write_file_durably(folder_ + "/none/file", "x");
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().to_string().find(folder_ + "/none/file"), std::string::npos);
}

TEST_F(FdTest, FullDiskIsAnError) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  const std::string text(100, 'x');
  const Result<void> written = write_all(full.get(), std::as_bytes(std::span(text.data(), text.size())));
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().native(), ENOSPC);
}

TEST_F(FdTest, ReadRefusesAFileAboveTheLimit) {
  const std::string path = folder_ + "/file";
  ASSERT_TRUE(write_file_durably(path, std::string(1000, 'x')).has_value());
  EXPECT_EQ(read_file(path, 1000)->size(), 1000u);
  EXPECT_EQ(read_file(path, 999).error().code(), ErrorCode::kRefused);
  EXPECT_EQ(read_file(folder_ + "/none", 10).error().code(), ErrorCode::kNotFound);
}

TEST_F(FdTest, MemoryFileKeepsItsSize) {
  const UniqueFd fd = std::move(*make_memory_file("test", 4096));
  EXPECT_EQ(::ftruncate(fd.get(), 100), -1);
  EXPECT_EQ(::ftruncate(fd.get(), 8192), -1);
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace ckpt
