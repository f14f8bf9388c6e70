// SPDX-License-Identifier: Apache-2.0
// Tests that files at the target count as the source's files if they are the same file or have the same
// content.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "agent/host_process/file_list.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

using ::testing::HasSubstr;

constexpr off_t kLong = static_cast<off_t>(kMaxWholeBytes) + 4096;

class ComparedFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
  }
  // Replaces the file with another file of that name, as at a target on another machine.
  void replace(const std::string& name, const std::string& content) {
    write("other", content);
    ASSERT_EQ(::rename((folder_ / "other").c_str(), (folder_ / name).c_str()), 0);
    list_.kernel = "another";
  }
  void open_in_child(const std::string& name, int flags, bool maps = false) {
    const Child child([&] {
      const int file = ::open((folder_ / name).c_str(), flags);
      const int access = (flags & O_ACCMODE) == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
      if (maps) (void)::mmap(nullptr, 4096, access, MAP_SHARED, file, 0);
    });
    auto list = collect_files(child.pid(), FileRules());
    ASSERT_TRUE(list.has_value()) << list.error().message();
    list_ = *std::move(list);
  }
  std::string why_not(Compared when = Compared::kNow) {
    const auto checked = check_files(list_, {}, when);
    return checked.has_value() ? "" : checked.error().message();
  }
  void sparse(const std::string& name, timespec written) {
    const UniqueFd file(::open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(file.get(), kLong), 0);
    const timespec times[2] = {written, written};
    ASSERT_EQ(::futimens(file.get(), times), 0);
  }

  TemporaryFolder folder_;
  FileList list_;
};

TEST_F(ComparedFiles, AnotherFileOfTheSameLengthIsRefused) {
  for (const int flags : {O_RDONLY, O_RDWR}) {
    write("model", "AAAA");
    open_in_child("model", flags);
    replace("model", "BBBB");
    EXPECT_THAT(why_not(), HasSubstr(folder_ / "model has different content at the target")) << flags;
    replace("model", "AAAA");
    EXPECT_EQ(why_not(), "") << flags;
  }
}

TEST_F(ComparedFiles, MemoryMappedForWritingMustBeTheSameFile) {
  write("shared", "AAAA");
  open_in_child("shared", O_RDWR, true);
  EXPECT_EQ(why_not(), "");
  replace("shared", "AAAA");
  EXPECT_THAT(why_not(), HasSubstr("mapped the file for writing: put it on a file system that both nodes mount"));
}

TEST_F(ComparedFiles, FileMappedReadOnlyIsComparedByContent) {
  write("weights", "AAAA");
  open_in_child("weights", O_RDONLY, true);
  replace("weights", "AAAB");
  EXPECT_THAT(why_not(), HasSubstr("different content"));
  replace("weights", "AAAA");
  EXPECT_EQ(why_not(), "");
}

TEST_F(ComparedFiles, SharedFileMayGrow) {
  for (const int flags : {O_RDONLY, O_RDWR, O_WRONLY | O_APPEND}) {
    write("log", "begin\n");
    open_in_child("log", flags);
    std::ofstream(folder_ / "log", std::ios::app) << "more\n";
    const auto checked = check_files(list_);
    ASSERT_TRUE(checked.has_value()) << checked.error().message();
    EXPECT_TRUE(checked->same.contains(folder_ / "log"));
  }
}

TEST_F(ComparedFiles, FileNumbersOfAnotherKernelAreNotCompared) {
  write("data", "AAAA");
  open_in_child("data", O_RDWR);
  list_.kernel = "another";
  const auto checked = check_files(list_);
  ASSERT_TRUE(checked.has_value()) << checked.error().message();
  EXPECT_FALSE(checked->same.contains(folder_ / "data"));
  std::ofstream(folder_ / "data") << "BBBB";
  EXPECT_THAT(why_not(), HasSubstr("different content"));
}

TEST_F(ComparedFiles, LongFileIsComparedBySamplesAndModificationTime) {
  const timespec written{1'000'000, 7};
  sparse("long", written);
  open_in_child("long", O_RDONLY);
  list_.kernel = "another";
  EXPECT_EQ(why_not(), "");
  sparse("long", timespec{1'000'000, 8});
  EXPECT_THAT(why_not(), HasSubstr("copy it with its time"));
  {
    const UniqueFd file(::open((folder_ / "long").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(file.get(), "x", 1, 100), 1);
    const timespec times[2] = {written, written};
    ASSERT_EQ(::futimens(file.get(), times), 0);
  }
  EXPECT_THAT(why_not(), HasSubstr("different content"));
}

TEST_F(ComparedFiles, LongFileOpenForWritingMustBeTheSameFile) {
  sparse("long", timespec{1'000'000, 7});
  open_in_child("long", O_RDWR);
  EXPECT_EQ(why_not(), "");
  list_.kernel = "another";
  EXPECT_THAT(why_not(), HasSubstr("the file is large and open for writing"));
}

TEST_F(ComparedFiles, FileDeletedFromASharedFolderIsAccepted) {
  write("journal", "AAAA");
  open_in_child("journal", O_RDWR);
  ::unlink((folder_ / "journal").c_str());
  EXPECT_EQ(why_not(), "");
  list_.kernel = "another";
  EXPECT_THAT(why_not(), HasSubstr("journal does not exist at the target"));
}

TEST_F(ComparedFiles, FileReplacedInASharedFolderIsAccepted) {
  write("manifest", "AAAA");
  open_in_child("manifest", O_RDONLY);
  const std::string kernel = list_.kernel;
  replace("manifest", "BBBBB");
  list_.kernel = kernel;
  EXPECT_EQ(why_not(), "");
  for (FileFact& fact : list_.files) fact.is_mount = true;
  EXPECT_THAT(why_not(), HasSubstr("manifest has 5 bytes at the target and 4 at the source"));
}

TEST_F(ComparedFiles, FileOfAStoredImageMustBeUnchanged) {
  write("data", "AAAA");
  open_in_child("data", O_RDONLY);
  EXPECT_EQ(why_not(Compared::kStored), "");
  std::ofstream(folder_ / "data") << "BBBB";
  EXPECT_THAT(why_not(Compared::kStored), HasSubstr("different content"));
  EXPECT_EQ(why_not(Compared::kNow), "");
}

TEST_F(ComparedFiles, ListFromAnOlderSourceIsComparedByLength) {
  write("data", "AAAA");
  open_in_child("data", O_RDONLY);
  list_.kernel.clear();
  list_.folders.clear();
  for (FileFact& fact : list_.files) {
    fact.identity = {};
    fact.digest.clear();
  }
  EXPECT_EQ(why_not(), "");
  std::ofstream(folder_ / "data") << "BBBBB";
  EXPECT_THAT(why_not(), HasSubstr("has 5 bytes at the target and 4 at the source"));
}

TEST_F(ComparedFiles, KernelFilesAreNotCompared) {
  const Child child([] {
    ::open("/proc/meminfo", O_RDONLY);
    ::open("/sys/devices/system/cpu/online", O_RDONLY);
  });
  auto list = collect_files(child.pid(), FileRules());
  ASSERT_TRUE(list.has_value()) << list.error().message();
  list_ = *std::move(list);
  list_.kernel = "another";
  EXPECT_EQ(why_not(), "");
}

FileIdentity on_network(const std::string& network, const std::string& handle) {
  FileIdentity identity;
  identity.inode = 7;
  identity.device = 40;
  identity.written_ns = identity.changed_ns = 1000;
  identity.network = network;
  identity.handle = handle;
  return identity;
}

TEST(FileIdentities, OnlyServerHandlesOrTimesIdentifyAFileAcrossKernels) {
  const FileIdentity nfs = on_network("nfs4 server:/home", "1:aabb");
  FileIdentity seen = nfs;
  seen.device = 50;
  seen.written_ns = seen.changed_ns = 2000;
  EXPECT_EQ(compare(nfs, seen, false), Sameness::kSame);
  EXPECT_EQ(compare(nfs, seen, true), Sameness::kOther) << "another mount of one kernel";
  seen.handle = "1:aabc";
  EXPECT_EQ(compare(nfs, seen, false), Sameness::kOther);
  seen = nfs;
  seen.network = "nfs4 other:/home";
  EXPECT_EQ(compare(nfs, seen, false), Sameness::kOther);

  const FileIdentity fuse = on_network("fuse.sshfs server:/home", "");
  seen = fuse;
  EXPECT_EQ(compare(fuse, seen, false), Sameness::kSame);
  seen.changed_ns = 2000;
  EXPECT_EQ(compare(fuse, seen, false), Sameness::kPerhaps);
  EXPECT_EQ(compare(on_network("", ""), on_network("", ""), false), Sameness::kOther);
  EXPECT_EQ(compare(FileIdentity(), FileIdentity(), true), Sameness::kOther);
}

TEST(FileIdentities, NetworkMountsAreRecognized) {
  const MountLine nfs =
      parse_mount("41 29 0:52 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2");
  EXPECT_EQ(nfs.mount, 41u);
  EXPECT_EQ(nfs.network, "nfs4 server:/home");
  EXPECT_EQ(parse_mount("29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw").network, "");
  EXPECT_EQ(parse_mount("30 1 0:60 / /data rw - fuse.juicefs JuiceFS:data rw").network,
            "fuse.juicefs JuiceFS:data");
  EXPECT_EQ(parse_mount("nothing").mount, 0u);
}

}  // namespace
}  // namespace ckpt::agent::host
