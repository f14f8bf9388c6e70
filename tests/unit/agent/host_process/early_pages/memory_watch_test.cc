// SPDX-License-Identifier: Apache-2.0
// Tests of watching a program's memory from outside. Writes are found, and memory that is not proven to be
// watched is not trusted. The program notices nothing.
#include "agent/host_process/early_pages/memory_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "agent/host_process/early_pages/held_pages.h"
#include "agent/host_process/early_pages/page_index.h"
#include "agent/host_process/early_pages/userfaultfd_of.h"
#include "agent/host_process/memory_log.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kWatchMiB = 1 << 20;
constexpr std::uint64_t kPages = 1024;
std::byte* const kPlace = reinterpret_cast<std::byte*>(0x7000'0000'0000);

MemoryRange range_of(std::uint64_t first_page, std::uint64_t pages) {
  const auto begin = reinterpret_cast<std::uint64_t>(kPlace) + first_page * kMemoryPage;
  return {begin, begin + pages * kMemoryPage};
}

void map_pages() {
  ::mmap(kPlace, kPages * kMemoryPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
         0);
  std::memset(kPlace, 1, kPages * kMemoryPage);
}

// A child that carries out orders, one letter each, one after the other, and answers each order.
class Program {
 public:
  explicit Program(const std::function<void(char)>& act) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      map_pages();
      for (char order = 'r'; ::write(ends[1], &order, 1) == 1;) {
        if (::read(ends[1], &order, 1) != 1) break;
        act(order);
      }
      ::_exit(errno == EINTR ? 3 : 0);
    }
    socket_.reset(ends[0]);
    ::close(ends[1]);
    wait();
  }
  ~Program() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void order_program(char order) const {
    EXPECT_EQ(::write(socket_.get(), &order, 1), 1);
    wait();
  }
  // Sends the last order. The child does not return to its loop, so its socket is closed.
  void tell_last(char order) const {
    EXPECT_EQ(::write(socket_.get(), &order, 1), 1);
    char answer = 0;
    EXPECT_EQ(::read(socket_.get(), &answer, 1), 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void wait() const {
    char answer = 0;
    EXPECT_EQ(::read(socket_.get(), &answer, 1), 1) << "the program has ended";
  }
  pid_t pid_ = 0;
  UniqueFd socket_;
};

class MemoryWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory is not for this";
#endif
    const Program probe([](char) {});
    auto watch = MemoryWatch::create(probe.pid());
    if (!watch && watch.error().code() == ErrorCode::kNotSupported) GTEST_SKIP() << watch.error().to_string();
    ASSERT_TRUE(watch.has_value()) << watch.error().to_string();
  }
  static std::vector<MemoryRange> written_of(const MemoryWatch& watch, const MemoryRange& range) {
    PresentPages found;
    EXPECT_TRUE(watch.find_present(range, found).has_value());
    return found.written;
  }
  static void follow_all(MemoryWatch& watch, const MemoryRange& range) {
    const auto follow = watch.follow(range);
    ASSERT_TRUE(follow.has_value()) << follow.error().to_string();
    EXPECT_TRUE(follow->is_watched);
  }
  static std::vector<MemoryRange> take_all(MemoryWatch& watch, const MemoryRange& range) {
    std::vector<MemoryRange> written;
    for (std::uint64_t at = range.begin; at < range.end;) {
      auto next = watch.collect_written(range, at, written);
      EXPECT_TRUE(next.has_value()) << next.error().to_string();
      if (!next) break;
      at = *next;
    }
    return written;
  }
};

TEST_F(MemoryWatchTest, WrittenPagesAreReportedOnce) {
  const Program program([](char order) {
    if (order == 'w') kPlace[7 * kMemoryPage] = std::byte{2};
    if (order == 'd') ::madvise(kPlace + 9 * kMemoryPage, kMemoryPage, MADV_DONTNEED);
  });
  auto watch = *MemoryWatch::create(program.pid());
  const auto mappings = *watch.mappings();
  const MemoryRange whole = range_of(0, kPages);
  EXPECT_NE(std::find(mappings.begin(), mappings.end(), whole), mappings.end());
  EXPECT_FALSE(*watch.is_watched(whole));
  EXPECT_FALSE(*watch.has_watched_memory());
  follow_all(watch, whole);
  EXPECT_TRUE(*watch.is_watched(whole));
  EXPECT_TRUE(*watch.has_watched_memory());
  EXPECT_TRUE(watch.follow(whole)->fresh.empty());
  EXPECT_EQ(take_all(watch, whole), std::vector{whole}) << "nothing of it is known yet";
  EXPECT_TRUE(take_all(watch, whole).empty());
  program.order_program('w');
  EXPECT_EQ(written_of(watch, whole), std::vector{range_of(7, 1)});
  EXPECT_EQ(take_all(watch, whole), std::vector{range_of(7, 1)});
  EXPECT_TRUE(written_of(watch, whole).empty());
  program.order_program('d');
  EXPECT_TRUE(written_of(watch, whole).empty()) << "a page that is not there is none";
}

TEST_F(MemoryWatchTest, NewMappingAtAnOldAddressIsNotWatched) {
  const Program program([](char order) {
    if (order == 'n') map_pages();
    if (order == 'm') {
      void* const elsewhere = ::mremap(kPlace, kPages * kMemoryPage, kPages * kMemoryPage,
                                       MREMAP_MAYMOVE | MREMAP_FIXED, kPlace + 64 * kWatchMiB);
      ::mremap(elsewhere, kPages * kMemoryPage, kPages * kMemoryPage, MREMAP_MAYMOVE | MREMAP_FIXED, kPlace);
    }
  });
  auto watch = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(watch.mappings().has_value());
  const MemoryRange whole = range_of(0, kPages);
  for (const char order : {'n', 'm'}) {
    follow_all(watch, whole);
    (void)take_all(watch, whole);
    program.order_program(order);
    EXPECT_FALSE(*watch.is_watched(whole)) << order;
    EXPECT_TRUE(watch.own(whole)->empty());
    EXPECT_TRUE(take_all(watch, whole).empty()) << "nobody watches it, so nothing can be taken";
  }
}

// The kernel refuses a scan that encounters a mapping without a watch, after it has taken the pages before
// that mapping.
TEST_F(MemoryWatchTest, RemappedPartDoesNotAffectItsNeighbors) {
  const Program program([](char) {
    kPlace[7 * kMemoryPage] = std::byte{2};
    ::mmap(kPlace + 900 * kMemoryPage, 100 * kMemoryPage, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    kPlace[1010 * kMemoryPage] = std::byte{2};
  });
  auto watch = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(watch.mappings().has_value());
  const MemoryRange whole = range_of(0, kPages);
  follow_all(watch, whole);
  (void)take_all(watch, whole);
  program.order_program('n');
  EXPECT_EQ(take_all(watch, whole), (std::vector{range_of(7, 1), range_of(1010, 1)}));
  EXPECT_EQ(*watch.own(whole), (std::vector{range_of(0, 900), range_of(1000, 24)}));
  EXPECT_EQ(watch.follow(whole)->fresh, std::vector{range_of(900, 100)});
}

// A process that shares memory with another process (vfork, CLONE_VM) must not take pages that the other
// process's watch has to find.
TEST_F(MemoryWatchTest, MappingHasOnlyOneWatch) {
  const Program program([](char) {});
  auto first = *MemoryWatch::create(program.pid());
  auto second = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(first.mappings().has_value());
  ASSERT_TRUE(second.mappings().has_value());
  follow_all(first, range_of(0, kPages / 2));
  EXPECT_FALSE(second.follow(range_of(0, kPages / 2))->is_watched);
  EXPECT_TRUE(*second.is_watched(range_of(0, kPages / 2))) << "by the other one";
  EXPECT_TRUE(second.own(range_of(0, kPages))->empty());
  EXPECT_TRUE(second.follow(range_of(kPages / 2, kPages / 2))->is_watched);
  EXPECT_EQ(*first.own(range_of(0, kPages)), std::vector{range_of(0, kPages / 2)});
}

// A heap, a stack and mremap make a mapping longer, and its watched part stays watched. The end of the
// mapping is not where a huge page could be.
TEST_F(MemoryWatchTest, GrownMappingIsNewOnlyAtItsEnd) {
  const Program program([](char) {
    ::munmap(kPlace + 600 * kMemoryPage, (kPages - 600) * kMemoryPage);
    ::mremap(kPlace, 600 * kMemoryPage, 1000 * kMemoryPage, 0);
    kPlace[999 * kMemoryPage] = std::byte{2};
  });
  auto watch = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(watch.mappings().has_value());
  follow_all(watch, range_of(0, 600));
  (void)take_all(watch, range_of(0, 600));
  program.order_program('g');
  ASSERT_TRUE(watch.mappings().has_value());
  const auto follow = *watch.follow(range_of(0, 1000));
  EXPECT_TRUE(follow.is_watched);
  EXPECT_EQ(follow.fresh, std::vector{range_of(600, 400)});
  EXPECT_EQ(take_all(watch, range_of(0, 1000)), std::vector{range_of(999, 1)});
}

TEST_F(MemoryWatchTest, NoMemoryIsWatchedAfterAnExec) {
  const Program program([](char) { ::execl("/bin/sleep", "sleep", "1000", nullptr); });
  auto watch = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(watch.mappings().has_value());
  follow_all(watch, range_of(0, kPages));
  (void)take_all(watch, range_of(0, kPages));
  program.tell_last('e');
  const auto mappings = watch.mappings();
  ASSERT_TRUE(mappings.has_value()) << mappings.error().to_string();
  for (const MemoryRange& mapping : *mappings) EXPECT_FALSE(*watch.is_watched(mapping));
  const auto again = watch.follow(mappings->front());
  EXPECT_FALSE(again.has_value() && again->is_watched);
}

TEST_F(MemoryWatchTest, EndOfTheWatchReleasesTheMappings) {
  const Program program([](char order) {
    if (order == 'w') std::memset(kPlace, 3, kPages * kMemoryPage);
  });
  {
    auto watch = *MemoryWatch::create(program.pid());
    ASSERT_TRUE(watch.mappings().has_value());
    follow_all(watch, range_of(0, kPages));
    (void)take_all(watch, range_of(0, kPages));
  }
  program.order_program('w');
  auto second = *MemoryWatch::create(program.pid());
  ASSERT_TRUE(second.mappings().has_value());
  EXPECT_TRUE(second.follow(range_of(0, kPages))->is_watched) << "the first one still holds it";
}

TEST_F(MemoryWatchTest, MemoryReadsMatchTheContentOfTheProgram) {
  const Program program([](char) {
    kPlace[3 * kMemoryPage] = std::byte{9};
    ::mprotect(kPlace + 3 * kMemoryPage, kMemoryPage, PROT_NONE);
  });
  std::vector<std::byte> read(2 * kMemoryPage);
  ASSERT_TRUE(read_memory(program.pid(), {range_of(0, 1), range_of(3, 1)}, read.data(), false).has_value());
  EXPECT_EQ(read[kMemoryPage], std::byte{1});
  program.order_program('p');
  const auto refused = read_memory(program.pid(), {range_of(0, 1), range_of(3, 1)}, read.data(), false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  ASSERT_TRUE(read_memory(program.pid(), {range_of(0, 1), range_of(3, 1)}, read.data(), true).has_value());
  EXPECT_EQ(read[0], std::byte{1});
  EXPECT_EQ(read[kMemoryPage], std::byte{9});
}

// The first thread is tried in four states: in a read (the program's loop), in a restarting call with a
// timeout, in a call with its own signal mask, and running.
TEST_F(MemoryWatchTest, WatchIsInvisibleToTheProgram) {
  static int on_event_done = 0;
  const Program program([](char order) {
    sigset_t usual;
    sigset_t open;
    sigemptyset(&usual);
    sigaddset(&usual, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &usual, nullptr);
    sigemptyset(&open);
    if (order == 's') {
      struct sigaction action {};
      action.sa_handler = [](int) { ++on_event_done; };
      ::sigaction(SIGUSR1, &action, nullptr);
      // The wait ends only by the signal, which arrives during the wait.
      if (::sigsuspend(&open) != -1 || errno != EINTR || on_event_done != 1) ::_exit(4);
      sigset_t now;
      ::sigprocmask(SIG_BLOCK, nullptr, &now);
      if (sigismember(&now, SIGUSR1) != 1 || sigismember(&now, SIGUSR2) != 0) ::_exit(5);
    }
    if (order == 't') {
      const timespec while_it_waits{0, 200'000'000};
      if (::nanosleep(&while_it_waits, nullptr) != 0) ::_exit(6);
    }
    if (order == 'c') {
      volatile std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < 20'000'000; ++i) sum = sum + i;
      if (sum != 199999990000000u) ::_exit(7);
    }
  });
  const auto descriptors = [&program] {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one :
         std::filesystem::directory_iterator("/proc/" + std::to_string(program.pid()) + "/fd"))
      ++count;
    return count;
  };
  const std::size_t before = descriptors();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(userfaultfd_of(program.pid()).has_value());
  for (const char order : {'t', 'c', 's'}) {
    std::atomic<bool> answered{false};
    std::thread asker([&] {
      program.order_program(order);
      answered = true;
    });
    for (int i = 0; i < 20; ++i) {
      const auto made = userfaultfd_of(program.pid());
      EXPECT_TRUE(made.has_value()) << order << " " << made.error().to_string();
    }
    // A signal is not lost, whenever it arrives.
    while (order == 's' && !answered) {
      EXPECT_TRUE(userfaultfd_of(program.pid()).has_value());
      static bool once = false;
      if (!std::exchange(once, true)) ::kill(program.pid(), SIGUSR1);
    }
    asker.join();
  }
  EXPECT_EQ(descriptors(), before);
}

TEST_F(MemoryWatchTest, StoppedProgramIsRefusedAndStaysStopped) {
  const Program program([](char) {});
  ::kill(program.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(program.pid(), &status, WUNTRACED), program.pid());
  EXPECT_FALSE(userfaultfd_of(program.pid()).has_value());
  ::kill(program.pid(), SIGCONT);
  program.order_program('x');
  EXPECT_TRUE(userfaultfd_of(program.pid()).has_value());
}

TEST_F(MemoryWatchTest, StopSignalDuringTheCallTakesEffect) {
  const Program program([](char) {});
  TraceOptions options;
  options.inside = [&] { ::kill(program.pid(), SIGSTOP); };
  EXPECT_TRUE(userfaultfd_of(program.pid(), options).has_value());
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(program.pid()), &stopped, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(stopped.si_status, SIGSTOP);
  ::kill(program.pid(), SIGCONT);
  program.order_program('x');
}

TEST_F(MemoryWatchTest, ContinueSignalDuringTheCallTakesEffect) {
  const Program program([](char) {});
  TraceOptions options;
  options.inside = [&] {
    ::kill(program.pid(), SIGSTOP);
    ::kill(program.pid(), SIGCONT);
  };
  EXPECT_TRUE(userfaultfd_of(program.pid(), options).has_value());
  program.order_program('x');
}

TEST_F(MemoryWatchTest, CallThatTimesOutLeavesTheProgramRunning) {
  const Program program([](char) {});
  TraceOptions options;
  options.limit_inside = std::chrono::milliseconds(0);
  for (int i = 0; i < 20; ++i) {
    (void)userfaultfd_of(program.pid(), options);
    program.order_program('x');
  }
}

TEST(PageIndexTest, NewestLocationOfAPageIsUsed) {
  PageIndex index;
  index.put({0x1000, 0x9000}, 0);
  index.put({0x3000, 0x5000}, 0x8000);
  EXPECT_EQ(index.ranges(), (std::vector<IndexedRange>{
                                {0x1000, 0x2000, 0}, {0x3000, 0x2000, 0x8000}, {0x5000, 0x4000, 0x4000}}));
  EXPECT_EQ(index.bytes(), 0x8000u);
  index.forget({0x2000, 0x4000});
  EXPECT_EQ(index.ranges(), (std::vector<IndexedRange>{
                                {0x1000, 0x1000, 0}, {0x4000, 0x1000, 0x9000}, {0x5000, 0x4000, 0x4000}}));
  EXPECT_EQ(index.missing({{0x0, 0x3000}, {0x4000, 0xa000}}),
            (std::vector<MemoryRange>{{0x0, 0x1000}, {0x2000, 0x3000}, {0x9000, 0xa000}}));
  index.retain_only({{0x4000, 0x6000}, {0x8000, 0x20000}});
  EXPECT_EQ(index.ranges(),
            (std::vector<IndexedRange>{
                {0x4000, 0x1000, 0x9000}, {0x5000, 0x1000, 0x4000}, {0x8000, 0x1000, 0x7000}}));
  index.retain_only({});
  EXPECT_EQ(index.bytes(), 0u);
}

TEST_F(MemoryWatchTest, PageThatDiffersFromItsCopyIsReported) {
  const Program program([](char) { kPlace[500 * kMemoryPage + 9] = std::byte{2}; });
  auto log = *MemoryLog::create(kPages * kMemoryPage, kMemoryPage);
  const MemoryRange whole = range_of(0, kPages);
  ASSERT_TRUE(read_memory(program.pid(), {whole}, log->reserve(whole.bytes())->data(), false));
  log->append(whole.bytes());
  // The ranges are out of order, like the ranges of pages that were read a second time.
  const std::vector<IndexedRange> held{{whole.begin, 100 * kMemoryPage, 0},
                                       {range_of(100, 1).begin, 500 * kMemoryPage, 100 * kMemoryPage}};
  std::mt19937_64 random(7);
  EXPECT_TRUE(compare_pages(program.pid(), held, *log).has_value());
  EXPECT_TRUE(compare_some_pages(program.pid(), held, *log, 64, random).has_value());
  program.order_program('w');
  const auto differs = compare_pages(program.pid(), held, *log);
  ASSERT_FALSE(differs.has_value());
  EXPECT_EQ(differs.error().code(), ErrorCode::kCorrupt);
  const std::string reason = differs.error().to_string();
  EXPECT_NE(reason.find("0x7000001f4000 of process " + std::to_string(program.pid())), std::string::npos)
      << reason;
  int found = 0;
  for (int i = 0; i < 100; ++i)
    if (!compare_some_pages(program.pid(), held, *log, 64, random)) ++found;
  EXPECT_GT(found, 0) << "a sample of 64 of 600 pages misses the page each of a hundred times";
  EXPECT_LT(found, 100) << "a sample is all pages";
}

TEST(RangeSetTest, RangesAreAddedAndRemoved) {
  RangeSet set;
  set.add({0x1000, 0x3000});
  set.add({0x5000, 0x6000});
  set.add({0x3000, 0x4000});
  const MemoryRange all{0x0, 0x9000};
  EXPECT_EQ(set.common(all), (std::vector<MemoryRange>{{0x1000, 0x4000}, {0x5000, 0x6000}}));
  EXPECT_EQ(set.missing(all), (std::vector<MemoryRange>{{0x0, 0x1000}, {0x4000, 0x5000}, {0x6000, 0x9000}}));
  set.add({0x2000, 0x8000});
  EXPECT_EQ(set.common(all), (std::vector<MemoryRange>{{0x1000, 0x8000}}));
  set.remove({0x3000, 0x4000});
  set.remove({0x0, 0x2000});
  set.remove({0x7000, 0xf000});
  EXPECT_EQ(set.common(all), (std::vector<MemoryRange>{{0x2000, 0x3000}, {0x4000, 0x7000}}));
  EXPECT_EQ(set.common({0x2000, 0x5000}), (std::vector<MemoryRange>{{0x2000, 0x3000}, {0x4000, 0x5000}}));
  EXPECT_TRUE(set.missing({0x4000, 0x7000}).empty());
}

TEST(MemoryLogTest, FullLogRefusesPagesThatDoNotFit) {
  auto log = *MemoryLog::create(4 * kMemoryPage, kMemoryPage);
  ASSERT_TRUE(log->reserve(3 * kMemoryPage).has_value());
  EXPECT_EQ(log->append(3 * kMemoryPage), 0u);
  EXPECT_TRUE(log->reserve(kMemoryPage).has_value());
  const auto refused = log->reserve(kMemoryPage + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
}

// A round fills the log on the pool while the loop queries its progress.
TEST(MemoryLogTest, GrowthIsVisibleToOtherThreads) {
  constexpr std::uint64_t kSteps = 512;
  auto log = *MemoryLog::create(kSteps * kMemoryPage, kMemoryPage);
  std::thread writer([&log] {
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      (*log->reserve(kMemoryPage))[0] = std::byte{1};
      log->append(kMemoryPage);
    }
  });
  std::uint64_t missing = 0;
  for (std::uint64_t filled = 0; filled < kSteps * kMemoryPage;) {
    filled = log->filled();
    if (filled > 0 && log->at(filled - kMemoryPage, 1)[0] != std::byte{1}) ++missing;
  }
  writer.join();
  EXPECT_EQ(missing, 0u) << "pages count as there before they are";
}

}  // namespace
}  // namespace ckpt::agent::host
