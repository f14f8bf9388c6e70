// SPDX-License-Identifier: Apache-2.0
// Tests of the files of compilers' caches. This test's own child has them mapped or open.
#include "agent/host_process/cache_files/cache_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTriton = {"*/.triton/cache/"};
constexpr uid_t kOtherUser = 12345;

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A cache in a folder of the test, with a file that this process has mapped.
class CacheFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(fs::path(kernel_).parent_path());
    fs::create_directories(images_);
    std::ofstream(kernel_) << "a kernel";
    ::chmod(kernel_.c_str(), 0750);
    map(kernel_);
  }
  void TearDown() override {
    if (mapped_ != MAP_FAILED) ::munmap(mapped_, 8);
  }
  void map(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    mapped_ = ::mmap(nullptr, 8, PROT_READ, MAP_PRIVATE, fd, 0);
    ::close(fd);
    ASSERT_NE(mapped_, MAP_FAILED);
  }
  void save() { ASSERT_TRUE(save_cache_files(::getpid(), kTriton, images_)); }
  // Removes the cache, as on a node that has never run the program.
  void remove_cache() { fs::remove_all(folder_ / ".triton"); }

  TemporaryFolder folder_;
  std::string kernel_ = folder_ / ".triton/cache/ab12/launcher.so";
  std::string images_ = folder_ / "images";
  void* mapped_ = MAP_FAILED;
};

TEST_F(CacheFilesTest, CacheFoldersMatchPathPrefixesOrPathParts) {
  const std::vector<std::string> folders = {"*/.triton/cache/", "/tmp/torchinductor_"};
  EXPECT_TRUE(is_cache_file("/home/a/.triton/cache/x/y.so", folders));
  EXPECT_TRUE(is_cache_file("/tmp/torchinductor_root/x.so", folders));
  EXPECT_FALSE(is_cache_file("/home/tmp/torchinductor_root/x.so", folders));
  EXPECT_FALSE(is_cache_file("/home/a/.triton/x.so", folders));
  EXPECT_FALSE(is_cache_file("/tmp/torchinductor_root/../../etc/passwd", folders));
  EXPECT_FALSE(is_cache_file("/tmp/torchinductor_root/x/", folders));
  EXPECT_FALSE(is_cache_file("/tmp/torchinductor_root/x.so", {}));
}

TEST_F(CacheFilesTest, MissingMappedCacheFileIsCreated) {
  save();
  remove_cache();
  const auto made = make_cache_files(images_, kTriton);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(content_of(kernel_), "a kernel");
  struct stat facts {};
  ASSERT_EQ(::stat(kernel_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u);
  EXPECT_EQ(made->files, std::vector<std::string>{kernel_});
  EXPECT_EQ(made->folders.size(), 3u);
  remove_cache_files(*made);
  EXPECT_FALSE(fs::exists(folder_ / ".triton"));
}

TEST_F(CacheFilesTest, OpenCacheFileIsTransferredUnlessOpenForWriting) {
  const std::string read = folder_ / ".triton/cache/ab12/read.json";
  const std::string written = folder_ / ".triton/cache/ab12/written.json";
  std::ofstream(read) << "{}";
  std::ofstream(written) << "{}";
  const int first = ::open(read.c_str(), O_RDONLY | O_CLOEXEC);
  const int second = ::open(written.c_str(), O_RDWR | O_CLOEXEC);
  const auto found = cache_files_of(::getpid(), kTriton);
  ::close(first);
  ::close(second);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find(read), nullptr);
  EXPECT_NE(found->find(kernel_), nullptr);
  EXPECT_EQ(found->find(written), nullptr);
}

TEST_F(CacheFilesTest, ExistingCacheFileIsKept) {
  save();
  std::ofstream(kernel_) << "of this node";
  const auto made = make_cache_files(images_, kTriton);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->files.empty());
  EXPECT_EQ(content_of(kernel_), "of this node");
}

TEST_F(CacheFilesTest, TargetRefusesACacheFolderThatIsNotInItsSettings) {
  save();
  remove_cache();
  const auto made = make_cache_files(images_, {"/tmp/torchinductor_"});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kRefused);
  EXPECT_FALSE(fs::exists(folder_ / ".triton"));
}

TEST_F(CacheFilesTest, SymbolicLinkInThePathIsRefused) {
  save();
  remove_cache();
  fs::create_directories(folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / ".triton");
  const auto made = make_cache_files(images_, kTriton);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find(".triton is not a folder at the target"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));
}

TEST_F(CacheFilesTest, FolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  save();
  remove_cache();
  fs::create_directories(folder_ / ".triton/cache");
  ASSERT_EQ(::chown((folder_ / ".triton").c_str(), kOtherUser, kOtherUser), 0);
  const auto made = make_cache_files(images_, kTriton);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("belongs to another user"), std::string::npos);
}

TEST_F(CacheFilesTest, MissingCacheFileAtTheTargetIsAccepted) {
  FileList list;
  const auto found = cache_files_of(::getpid(), kTriton);
  ASSERT_TRUE(found);
  list.cached = *found;
  FileFact& fact = list.files.emplace_back();
  fact.path = kernel_;
  fact.bytes = 8;
  remove_cache();
  EXPECT_TRUE(check_files(list, kTriton));
  const auto refused = check_files(list, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("not in any of the target's cache_folders"), std::string::npos);
  list.cached.files.clear();
  EXPECT_FALSE(check_files(list, kTriton));
}

TEST_F(CacheFilesTest, CacheFileWithOtherContentAtTheTargetIsRefused) {
  FileList list;
  const auto found = cache_files_of(::getpid(), kTriton);
  ASSERT_TRUE(found);
  list.cached = *found;
  FileFact& fact = list.files.emplace_back();
  fact.path = kernel_;
  fact.bytes = 8;
  std::ofstream(kernel_) << "of another length";
  EXPECT_FALSE(check_files(list, kTriton));
}

}  // namespace
}  // namespace ckpt::agent::host
