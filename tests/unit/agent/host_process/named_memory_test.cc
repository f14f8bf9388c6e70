// SPDX-License-Identifier: Apache-2.0
// Tests of memory and semaphores in /dev/shm, which this test's own child has.
#include "agent/host_process/named_memory/named_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/link_paths.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/named_memory/dump_links.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kBytes = 10000;

class SharingChild {
 public:
  explicit SharingChild(const std::function<bool()>& prepare) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const char done = prepare() ? 'y' : 'n';
      (void)!::write(ends[1], &done, 1);
      for (;;) ::pause();
    }
    char done = 0;
    EXPECT_EQ(::read(ends[0], &done, 1), 1);
    EXPECT_EQ(done, 'y');
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~SharingChild() { end(); }
  SharingChild(const SharingChild&) = delete;
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

NameOwner held_by(pid_t pid) {
  return name_owner(pid, {});
}

class NamedMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto place = find_memory_place();
    if (!place || *place != "/dev/shm") GTEST_SKIP() << "/dev/shm is no tmpfs here";
    for (const std::string& name : {memory_, semaphore()}) ::unlink(("/dev/shm/" + name).c_str());
    auto folder = MemoryFolder::create("/dev/shm", memory_, 0);
    ASSERT_TRUE(folder.has_value());
    folder_.emplace(*std::move(folder));
  }
  void TearDown() override {
    for (const std::string& name : {memory_, semaphore(), std::string("link_remap.") + memory_})
      ::unlink(("/dev/shm/" + name).c_str());
  }
  [[nodiscard]] std::string semaphore() const { return "sem." + memory_; }
  [[nodiscard]] std::string images() const { return folder_->path(); }
  [[nodiscard]] std::string link() const { return "link_remap." + memory_; }

  // Creates a shared memory object and a semaphore; both are mapped, and their descriptors are closed.
  [[nodiscard]] bool share() const {
    const int file = ::shm_open(("/" + memory_).c_str(), O_RDWR | O_CREAT | O_EXCL, 0640);
    if (file < 0 || ::ftruncate(file, kBytes) != 0) return false;
    auto* bytes = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (bytes == MAP_FAILED) return false;
    bytes[kBytes - 1] = 'x';
    ::close(file);
    return ::sem_open(("/" + memory_).c_str(), O_CREAT | O_EXCL, 0600, 3) != SEM_FAILED;
  }
  // Links the semaphore's file as CRIU does, and writes its image.
  void dump() const {
    ASSERT_EQ(::link(("/dev/shm/" + semaphore()).c_str(), ("/dev/shm/" + link()).c_str()), 0);
    std::ofstream(images() + "/files.img") << files_image(link());
  }
  // Returns a files.img. The numbers are the fields of images/{fdinfo,regfile}.proto: 1 and 2 are the kind
  // and an id, 3 is a regular file, 6 is its name.
  static std::string files_image(const std::string& name) {
    const std::string path = "/dev/shm/" + name;
    std::string file = std::string("\x08\x01\x32", 3) + static_cast<char>(path.size()) + path;
    std::string image("\x19\x43\x56\x54\x38\x31\x30\x56", 8);
    put_record(image, std::string("\x08\x01\x10\x01\x1a", 5) + static_cast<char>(file.size()) + file);
    return image;
  }

  const std::string memory_ = "gm-named-test-" + std::to_string(::getpid());
  std::optional<MemoryFolder> folder_;
};

TEST_F(NamedMemoryTest, MappedFilesInSharedMemoryAreFoundByName) {
  const SharingChild child([this] { return share(); });
  const auto found = named_memory_of(child.pid());
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_EQ(found->bytes(), kBytes + sizeof(sem_t));
  EXPECT_TRUE(found->needs_links());
  for (const NamedFile& file : found->files) {
    EXPECT_EQ(file.lost_name, file.names.front() == semaphore());
    EXPECT_EQ(file.mode, file.lost_name ? 0600u : 0640u);
  }
  EXPECT_TRUE(shared_outside(*found, child.pid()).empty());
}

TEST_F(NamedMemoryTest, FileUsedByAnotherProgramIsReported) {
  const SharingChild child([this] { return share(); });
  const UniqueFd own(::open(("/dev/shm/" + memory_).c_str(), O_RDONLY | O_CLOEXEC));
  const auto found = named_memory_of(child.pid());
  ASSERT_TRUE(found.has_value());
  const auto problems = shared_outside(*found, child.pid());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("/dev/shm/" + memory_ + " is shared with process " + std::to_string(::getpid())),
            std::string::npos)
      << problems[0];
}

TEST_F(NamedMemoryTest, NamedFilesAreRecreatedAndFoundByCriu) {
  SharingChild child([this] { return share(); });
  dump();
  const auto saved = save_named_memory(held_by(child.pid()), images());
  ASSERT_TRUE(saved.has_value()) << saved.error().to_string();
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + link())) << "CRIU's link stayed";
  EXPECT_TRUE(why_not_made(*saved).empty()) << "they are these very files";
  child.end();
  remove_unused(*saved);
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + memory_));

  const auto made = restore_named_memory(images(), "test-j1");
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_EQ(made->files.size(), 2u);
  const auto content = read_file("/dev/shm/" + memory_, kBytes + 1);
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(*content, std::string(kBytes - 1, '\0') + "x");
  struct stat facts {};
  ASSERT_EQ(::stat(("/dev/shm/" + memory_).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  sem_t* semaphore_here = ::sem_open(("/" + memory_).c_str(), 0);
  ASSERT_NE(semaphore_here, SEM_FAILED);
  int value = 0;
  EXPECT_EQ(::sem_getvalue(semaphore_here, &value), 0);
  EXPECT_EQ(value, 3);
  ::sem_close(semaphore_here);
  const auto files = read_file(images() + "/files.img", 4096);
  ASSERT_TRUE(files.has_value());
  EXPECT_NE(files->find(images() + "/" + link()), std::string::npos);
  EXPECT_TRUE(std::filesystem::equivalent(images() + "/" + link(), "/dev/shm/" + semaphore()));

  remove_made_for(images());
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + memory_));
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + semaphore()));
}

TEST_F(NamedMemoryTest, NameInUseIsRefusedAndLeavesNoFile) {
  SharingChild child([this] { return share(); });
  auto saved = save_named_memory(held_by(child.pid()), images());
  ASSERT_TRUE(saved.has_value());
  child.end();
  remove_unused(*saved);
  std::ofstream("/dev/shm/" + saved->files.back().names.front()) << "of another program";
  const auto problems = why_not_made(*saved);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("already exists at the target"), std::string::npos);
  const auto made = restore_named_memory(images(), "test-j1");
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), ErrorCode::kRefused);
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + saved->files.front().names.front()));
  EXPECT_TRUE(std::filesystem::exists("/dev/shm/" + saved->files.back().names.front()));
}

TEST_F(NamedMemoryTest, TruncatedContentLeavesNoFile) {
  SharingChild child([this] { return share(); });
  const auto saved = save_named_memory(held_by(child.pid()), images());
  ASSERT_TRUE(saved.has_value());
  child.end();
  remove_unused(*saved);
  std::filesystem::resize_file(images() + "/named-memory-1.img", 1);
  EXPECT_EQ(restore_named_memory(images(), "test-j1").error().code(), ErrorCode::kCorrupt);
  for (const NamedFile& file : saved->files)
    EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + file.names.front())) << file.names.front();
}

TEST_F(NamedMemoryTest, FileUsedByAProcessIsNotRemoved) {
  SharingChild child([this] { return share(); });
  const auto found = named_memory_of(child.pid());
  ASSERT_TRUE(found.has_value());
  remove_unused(*found);
  EXPECT_TRUE(std::filesystem::exists("/dev/shm/" + memory_));
  EXPECT_TRUE(std::filesystem::exists("/dev/shm/" + semaphore()));
}

TEST_F(NamedMemoryTest, LinksOfAnInterruptedDumpAreRemovedByTheNextDump) {
  const SharingChild child([this] { return share(); });
  const std::string lock = images() + "/lock";
  const auto found = named_memory_of(child.pid());
  ASSERT_TRUE(found.has_value());
  {
    const auto first = DumpLinks::try_acquire(*found, lock.c_str());
    ASSERT_TRUE(first.has_value());
    dump();
    EXPECT_FALSE(DumpLinks::try_acquire(*found, lock.c_str()).has_value()) << "two have the lock";
  }
  auto second = DumpLinks::try_acquire(*found, lock.c_str());
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + link()));
  EXPECT_TRUE(std::filesystem::exists("/dev/shm/" + semaphore()));
  second->release();
  dump();
  auto third = DumpLinks::try_acquire(NamedMemory(), lock.c_str());
  ASSERT_TRUE(third.has_value());
  EXPECT_TRUE(std::filesystem::exists("/dev/shm/" + link())) << "it is of a dump that was finished";
}

TEST_F(NamedMemoryTest, MalformedIndexIsRefused) {
  const auto refuses = [&](const std::function<void(NamedFile&)>& spoil) {
    NamedMemory memory;
    NamedFile& file = memory.files.emplace_back();
    file.names = {memory_};
    spoil(file);
    const auto bytes = wire::encode(memory);
    std::ofstream(images() + "/named-memory.img", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const auto made = restore_named_memory(images(), "test-j1");
    return !made.has_value() && made.error().code() == ErrorCode::kCorrupt && !why_not_made(memory).empty();
  };
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names = {"../escape"}; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names = {".."}; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names = {""}; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names = {std::string("a\0b", 3)}; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names.clear(); }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names = {"link_remap.1"}; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.mode = 04755; }));
  EXPECT_TRUE(refuses([](NamedFile& file) { file.names.resize(kMaxNamesOfFile + 1, "a"); }));
}

TEST(LinkPaths, OtherFilesAreUnchangedAndMalformedImagesAreErrors) {
  std::string image("\x19\x43\x56\x54\x38\x31\x30\x56", 8);
  put_record(image, std::string("\x08\x01\x10\x01\x1a\x0d\x32\x0b") + "/dev/shm/ab");
  const auto same = with_link_paths(image, {{"link_remap.1", "/elsewhere"}});
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(*same, image);
  EXPECT_FALSE(with_link_paths(image.substr(0, image.size() - 1), {}).has_value());
  EXPECT_FALSE(with_link_paths("", {}).has_value());
}

}  // namespace
}  // namespace ckpt::agent::host
