// SPDX-License-Identifier: Apache-2.0
// Tests of objects that a job has by a name alone. Files in /dev/shm move with the job; System V objects and
// message queues are named as obstacles. Objects of other programs are left alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "agent/host_process/memory_folder.h"
#include "agent/host_process/named_memory/named_memory.h"
#include "agent/host_process/named_memory/names_alone.h"
#include "agent/host_process/named_memory/shared_folder_watch.h"
#include "agent/host_process/obstacles/kernel_keys.h"
#include "agent/host_process/obstacles/kernel_names.h"
#include "agent/host_process/obstacles/message_queues.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/host_process/obstacles/small_job.h"

namespace ckpt::agent::host {
namespace {

std::int64_t now_unix_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1'000'000;
}

NameOwner owner_of(const SmallJob& job, bool is_alone = true) {
  NameRules rules;
  rules.job = "test-j1";
  rules.started_unix_ms = now_unix_ms();
  rules.is_alone = is_alone;
  return name_owner(job.pid(), rules);
}

bool write_text(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Tests that run in a /dev/shm of their own, since agents on this machine mark files in the machine's
// /dev/shm.
class NamesAloneTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) return;
    outer_ = UniqueFd(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
    folder_ = std::filesystem::current_path();
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr), 0);
  }
  static void TearDownTestSuite() {
    if (!outer_) return;
    ASSERT_EQ(::setns(outer_.get(), CLONE_NEWNS), 0);
    outer_ = UniqueFd();
    std::filesystem::current_path(folder_);
  }
  static inline UniqueFd outer_;
  static inline std::filesystem::path folder_;

  ~NamesAloneTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::uint64_t inode() const {
    struct stat facts {};
    return ::lstat(path_.c_str(), &facts) == 0 ? facts.st_ino : 0;
  }
  bool travels(const NameOwner& owner) const { return names_alone_of(owner, {}).files.contains(inode()); }
  std::string problem(const NameOwner& owner) const {
    const auto problems = names_in_doubt(owner);
    const auto at = std::find_if(problems.begin(), problems.end(),
                                 [this](const std::string& text) { return text.starts_with(path_); });
    return at == problems.end() ? "" : *at;
  }
  const std::string name_ = "gm-alone-test-" + std::to_string(::getpid());
  const std::string path_ = "/dev/shm/" + name_;
};

TEST_F(NamesAloneTest, NameOfTheOnlyJobIsTransferred) {
  const SmallJob job([this] { return write_text(path_, "x"); });
  ASSERT_TRUE(job.is_there());
  EXPECT_TRUE(travels(owner_of(job)));
  EXPECT_FALSE(travels(NameOwner())) << "not asked for";
}

TEST_F(NamesAloneTest, MarkIdentifiesTheOwnerOfAFile) {
  const SmallJob job([this] { return write_text(path_, "x"); });
  const SmallJob other([] { return true; });
  ASSERT_TRUE(job.is_there() && other.is_there());
  set_mark(path_, mark_of_maker(job.pid()), false);
  EXPECT_TRUE(travels(owner_of(job, false))) << "also beside another job";
  NameOwner another = owner_of(other, false);
  another.since_unix_ms = owner_of(job).since_unix_ms;
  EXPECT_FALSE(travels(another));
  EXPECT_EQ(problem(another), "") << "another job's name is no obstacle";
  set_mark(path_, mark_of_maker(other.pid()), false);
  EXPECT_TRUE(travels(owner_of(job, false))) << "the first one made it";
  set_mark(path_, mark_of_job("test-j1"), true);
  EXPECT_TRUE(travels(another)) << "it arrived with that job";
}

TEST_F(NamesAloneTest, WatchMarksFilesCreatedByAJob) {
  const auto watch = SharedFolderWatch::start();
  if (!watch.has_value()) GTEST_SKIP() << watch.error().to_string();
  const SmallJob job([this] { return write_text(path_, "x"); });
  ASSERT_TRUE(job.is_there());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!travels(owner_of(job, false)) && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
  EXPECT_TRUE(travels(owner_of(job, false))) << "no mark within 20 s";
}

TEST_F(NamesAloneTest, NameWithAnAmbiguousOwnerIsAnObstacle) {
  const SmallJob job([this] { return write_text(path_, "x"); });
  const NameOwner owner = owner_of(job, false);
  EXPECT_FALSE(travels(owner));
  EXPECT_NE(problem(owner).find("may belong to this job or to another"), std::string::npos) << problem(owner);
}

TEST_F(NamesAloneTest, NamesOfOtherOwnersAreNotTransferred) {
  ASSERT_TRUE(write_text(path_, "x"));
  const SmallJob later([] { return true; });
  NameOwner owner = owner_of(later);
  owner.since_unix_ms += 60'000;
  EXPECT_FALSE(travels(owner)) << "older than the job";
  owner.since_unix_ms -= 120'000;
  EXPECT_TRUE(travels(owner));
  owner.uid = 65534;
  EXPECT_FALSE(travels(owner)) << "of another user";
  owner.uid = 0;
  const UniqueFd held(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(travels(owner)) << "open in another process";
}

TEST_F(NamesAloneTest, NamedFolderIsReportedAsAnObstacle) {
  const SmallJob job([this] { return ::mkdir(path_.c_str(), 0700) == 0; });
  EXPECT_NE(problem(owner_of(job)).find("is not a file"), std::string::npos);
}

TEST_F(NamesAloneTest, NamedFileIsCreatedAtTheTargetAndRemovedAtTheSource) {
  auto images = MemoryFolder::create("/dev/shm", "names-" + std::to_string(::getpid()), 0);
  ASSERT_TRUE(images.has_value());
  const std::string folder = images->path();
  std::optional<NamedMemory> saved;
  {
    const SmallJob job([this] { return write_text(path_, "kept by its name"); });
    set_mark(path_, mark_of_maker(job.pid()), false);
    auto done = save_named_memory(owner_of(job, false), folder);
    ASSERT_TRUE(done.has_value()) << done.error().to_string();
    saved = *std::move(done);
  }
  // Within one machine: a copy replaces the file, and the source does not remove the copy.
  const std::uint64_t before = inode();
  ASSERT_TRUE(std::filesystem::copy_file(folder + "/named-memory-0.img", folder + "/kept"));
  ASSERT_TRUE(restore_named_memory(folder, "test-j1").has_value());
  EXPECT_NE(inode(), before);
  remove_unused(*saved);
  EXPECT_TRUE(std::filesystem::exists(path_));
  // On another machine: the file is created there, and the source removes its own file.
  NamedMemory& memory = *saved;
  memory.files.front().inode = inode();
  remove_unused(memory);
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::rename(folder + "/kept", folder + "/named-memory-0.img");
  const auto made = restore_named_memory(folder, "test-j1");
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  std::string text;
  std::getline(std::ifstream(path_), text);
  EXPECT_EQ(text, "kept by its name");
  const SmallJob restored([] { return true; });
  EXPECT_TRUE(travels([&] {
    NameOwner owner = owner_of(restored, false);
    owner.since_unix_ms -= 60'000;  // the instance starts before its objects are created
    return owner;
  }()))
      << "it travels again";
}

// Objects of the job, and objects of other processes, one of each kind.
struct Objects {
  int memory = -1;
  int semaphores = -1;
  int queue = -1;
  bool make() {
    memory = ::shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    semaphores = ::semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    queue = ::msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    return memory >= 0 && semaphores >= 0 && queue >= 0;
  }
  bool use() const {
    sembuf add{1, 1, 0};
    const struct {
      long kind;
      char text[1];
    } message{1, {'x'}};
    return ::semop(semaphores, &add, 1) == 0 && ::msgsnd(queue, &message, 1, 0) == 0;
  }
  void remove() const {
    ::shmctl(memory, IPC_RMID, nullptr);
    ::semctl(semaphores, 0, IPC_RMID);
    ::msgctl(queue, IPC_RMID, nullptr);
  }
};

class SystemVTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(theirs_.make());
    ASSERT_TRUE(theirs_.use());
    void* shared =
        ::mmap(nullptr, sizeof(Objects), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    own_ = new (shared) Objects;
  }
  ~SystemVTest() override {
    theirs_.remove();
    if (own_ != nullptr) own_->remove();
  }
  static std::string all_of(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    return all;
  }
  static void expect_all(const std::string& text, const Objects& objects, bool listed) {
    for (const auto& remedy : {"ipcrm -m " + std::to_string(objects.memory) + ")",
                               "ipcrm -s " + std::to_string(objects.semaphores) + ")",
                               "ipcrm -q " + std::to_string(objects.queue) + ")"})
      EXPECT_EQ(text.find(remedy) != std::string::npos, listed) << remedy << " in\n" << text;
  }
  Objects theirs_;
  Objects* own_ = nullptr;
};

TEST_F(SystemVTest, ObjectsUsedByAnExitedProcessOfTheJobAreReported) {
  const SmallJob job([this] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(own_->make() && own_->use() ? 0 : 1);
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  });
  ASSERT_TRUE(job.is_there());
  NameRules rules;
  const std::string text = all_of(system_v_of(name_owner(job.pid(), rules), {}));
  expect_all(text, *own_, true);
  expect_all(text, theirs_, false);
  const std::string rest = all_of(system_v_of(name_owner(job.pid(), rules), {own_->memory}));
  EXPECT_EQ(rest.find("shared memory"), std::string::npos) << "it is named as a mapping";
}

TEST_F(SystemVTest, ObjectsUsedByAnotherJobAreNotReported) {
  const SmallJob job([] { return true; });
  const SmallJob other([this] { return own_->make() && own_->use(); });
  ASSERT_TRUE(job.is_there() && other.is_there());
  expect_all(all_of(system_v_of(owner_of(job, false), {})), *own_, false);
}

TEST(SystemVOwner, UnusedObjectBelongsToTheOnlyJobOfItsUser) {
  SystemVObject object;
  object.uid = 7;
  object.changed_unix_s = 100;
  NameOwner owner;
  owner.uid = 7;
  owner.since_unix_ms = 100'900;
  owner.is_alone = true;
  EXPECT_TRUE(is_of_job(object, owner));
  owner.is_alone = false;
  EXPECT_FALSE(is_of_job(object, owner));
  owner.is_alone = true;
  owner.uid = 8;
  EXPECT_FALSE(is_of_job(object, owner));
  owner.uid = 7;
  owner.since_unix_ms = 101'000;
  EXPECT_FALSE(is_of_job(object, owner)) << "older than the job";
  owner.since_unix_ms = 0;
  object.is_used = true;
  EXPECT_FALSE(is_of_job(object, owner)) << "another one has used it";
  object.is_used_by_job = true;
  EXPECT_TRUE(is_of_job(object, owner));
}

TEST(KernelKeys, KeyringsOfProcessesThatHoldKeysAreReported) {
  const std::string keys =
      "01c09455 I--Q---     1 perm 0c030000     0 65534 keyring   .user_reg: 2\n"
      "032fa42c I--Q---     2 perm 1f3f0000     0 65534 keyring   _uid.0: 1\n"
      "11111111 I--Q---     1 perm 3f010000     0     0 keyring   _pid: empty\n"
      "22222222 I--Q---     1 perm 3f010000     0     0 keyring   _pid: 1\n"
      "33333333 I--Q---     1 perm 3f010000     0     0 keyring   _tid: 2\n"
      "44444444 I--Q---     1 perm 3f010000     7     7 keyring   _pid: 1\n"
      "55555555 I--Q---     1 perm 3f010000     0     0 user      _pid: 4\n";
  EXPECT_EQ(process_keyrings(keys, 0), (std::vector<std::string>{"22222222", "33333333"}));
  EXPECT_TRUE(process_keyrings("", 0).empty());
}

TEST(MessageQueues, QueueThatNoProcessHasOpenIsReported) {
  const std::string name = "/gm-queue-test-" + std::to_string(::getpid());
  const SmallJob job([&] {
    const mqd_t queue = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, nullptr);
    return queue >= 0 && ::mq_close(queue) == 0;
  });
  if (!job.is_there()) GTEST_SKIP() << "this kernel has none";
  const auto has = [&](const NameOwner& owner) {
    const auto texts = message_queues_of(owner);
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(name) != std::string::npos; });
  };
  EXPECT_TRUE(has(owner_of(job)));
  EXPECT_FALSE(has(owner_of(job, false)));
  const mqd_t own = ::mq_open(name.c_str(), O_RDONLY);
  EXPECT_FALSE(has(owner_of(job))) << "another process has it";
  ::mq_close(own);
  ::mq_unlink(name.c_str());
}

}  // namespace
}  // namespace ckpt::agent::host
