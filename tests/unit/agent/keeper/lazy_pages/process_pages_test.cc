// SPDX-License-Identifier: Apache-2.0
// Tests of a child process whose memory is missing. The child works on the memory in two threads: it reads
// and writes pages, moves, discards and unmaps memory, forks, and starts threads that end. It compares each
// page with the expected content. Handling another process's missing pages needs a kernel that reports all
// these events (userfaultfd(2)). The tests are skipped on other kernels.
#include "agent/keeper/lazy_pages/process_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <random>
#include <thread>
#include <vector>

#include "agent/keeper/lazy_pages/plan.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::lazy_pages {
namespace {

constexpr std::uint64_t kPages = 4096;  // 16 MiB
constexpr int kSteps = 1000;
constexpr unsigned kMaxSeconds = 120;  // the limit for a page that never arrives
constexpr int kGood = 0;
constexpr int kUnsupported = 77;

std::uint64_t word_of(std::uint64_t page) {
  return (page + 1) * 0x9e3779b97f4a7c15U;
}

int open_faults() {
  const auto fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                 UFFD_FEATURE_EVENT_UNMAP;
  return fd >= 0 && ::ioctl(fd, UFFDIO_API, &api) == 0 ? fd : -1;
}

void send_descriptor(int socket, int descriptor, std::uint64_t address) {
  iovec content{&address, sizeof address};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  ::sendmsg(socket, &message, 0);
}

std::pair<UniqueFd, std::uint64_t> receive_descriptor(int socket) {
  std::uint64_t address = 0;
  iovec content{&address, sizeof address};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof address) return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return {UniqueFd(descriptor), address};
}

// The child's view of where each page is now, and of the page's expected content.
class Program {
 public:
  Program(std::byte* memory, std::uint64_t begin, std::uint64_t end, unsigned seed) : random_(seed) {
    for (std::uint64_t page = begin; page < end; ++page)
      pages_.push_back({memory + page * kPageBytes, word_of(page), true});
  }
  int run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const int bad = do_one();
      if (bad != kGood) return bad;
    }
    for (const Page& page : pages_) {
      if (!is_good(page)) return 1;
    }
    return kGood;
  }

 private:
  struct Page {
    std::byte* at = nullptr;
    std::uint64_t word = 0;
    bool can_write = true;
  };
  static bool is_good(const Page& page) {
    std::uint64_t word = 0;
    if (page.at != nullptr) std::memcpy(&word, page.at + 8, sizeof word);
    return page.at == nullptr || word == page.word;
  }
  int do_one() {
    const std::uint64_t first = random_() % (pages_.size() - 16);
    const std::uint64_t count = random_() % 16 + 1;
    switch (random_() % 7) {
      case 0:
        for (std::uint64_t i = first; i < first + count; ++i) discard(pages_[i]);
        return kGood;
      case 1:
        move(pages_[first]);
        return kGood;
      case 2:
        return in_fork(first, count);
      case 3:
        // The thread's stack is discarded when the thread ends.
        std::thread([] {}).join();
        return kGood;
      case 4:
        write(pages_[first]);
        return kGood;
      case 5:
        protect(pages_[first]);
        return kGood;
      default:
        for (std::uint64_t i = first; i < first + count; ++i) {
          if (!is_good(pages_[i])) return 2;
        }
        return kGood;
    }
  }
  static void discard(Page& page) {
    if (page.at == nullptr) return;
    ::madvise(page.at, kPageBytes, MADV_DONTNEED);
    page.word = 0;
  }
  static void move(Page& page) {
    if (page.at == nullptr) return;
    void* const to = ::mremap(page.at, kPageBytes, kPageBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    if (to == MAP_FAILED) return;
    ::munmap(page.at, kPageBytes);
    page.at = static_cast<std::byte*>(to);
  }
  // Separates the page's mapping from the neighboring mappings.
  static void protect(Page& page) {
    if (page.at != nullptr && ::mprotect(page.at, kPageBytes, PROT_READ) == 0) page.can_write = false;
  }
  void write(Page& page) {
    if (page.at == nullptr || !page.can_write) return;
    page.word = random_();
    std::memcpy(page.at + 8, &page.word, sizeof page.word);
  }
  int in_fork(std::uint64_t first, std::uint64_t count) {
    if (++forks_ > 5) return kGood;
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::uint64_t i = first; i < first + count; ++i) {
        if (!is_good(pages_[i])) ::_exit(3);
      }
      ::_exit(kGood);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
  }

  std::mt19937_64 random_;
  std::vector<Page> pages_;
  int forks_ = 0;
};

[[noreturn]] void be_program(int socket, unsigned seed) {
  const int faults = open_faults();
  if (faults < 0) ::_exit(kUnsupported);
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uint64_t>(memory), kPages * kPageBytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(faults, UFFDIO_REGISTER, &range) != 0) ::_exit(kUnsupported);
  send_descriptor(socket, faults, range.range.start);
  ::close(faults);
  ::alarm(kMaxSeconds);
  int other = kGood;
  std::thread thread([&] { other = Program(memory, kPages / 2, kPages, seed + 1000).run(kSteps); });
  const int own = Program(memory, 0, kPages / 2, seed).run(kSteps);
  thread.join();
  ::_exit(own != kGood ? own : other);
}

// Runs the program and returns its status. With `all`, the program also receives pages that it does not
// request.
int status_of_program(unsigned seed, bool all) {
  std::vector<std::byte> content(kPages * kPageBytes);
  for (std::uint64_t page = 0; page < kPages; ++page) {
    const std::uint64_t word = word_of(page);
    std::memcpy(content.data() + page * kPageBytes + 8, &word, sizeof word);
  }
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) be_program(other.get(), seed);
  other.reset();
  auto [faults, address] = receive_descriptor(own.get());
  std::list<ProcessPages> processes;
  MissingMemory missing;
  missing.add({address, kPages * kPageBytes, content.data()});
  if (faults) processes.emplace_back(std::move(faults), std::move(missing));
  siginfo_t ended{};
  while (!processes.empty() && ended.si_pid == 0) {
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    std::vector<ProcessPages> forked;
    for (ProcessPages& process : processes) {
      EXPECT_TRUE(process.read_events(forked).has_value());
      EXPECT_TRUE(process.bring_waiting().has_value());
      const bool more = !all || process.bring_some().has_value();
      EXPECT_TRUE(more);
    }
    for (ProcessPages& process : forked) processes.push_back(std::move(process));
    processes.remove_if([](const ProcessPages& process) { return process.is_done(); });
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

void expect_good(unsigned first_seed, bool all) {
  for (unsigned seed = first_seed; seed < first_seed + 10; ++seed) {
    const int status = status_of_program(seed, all);
    if (status == kUnsupported) GTEST_SKIP() << "this kernel does not tell of missing pages";
    ASSERT_EQ(status, kGood) << "seed " << seed;
  }
}

TEST(ProcessPages, ProgramThatChangesItsMemoryDuringTheTransferFindsAllPages) {
  expect_good(1, true);
}

TEST(ProcessPages, EachTouchedPageIsLoaded) {
  expect_good(101, false);
}

TEST(ProcessPages, ProgramThatExitsEarlyEndsTheTransfer) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const int faults = open_faults();
    if (faults < 0) ::_exit(kUnsupported);
    send_descriptor(other.get(), faults, 1 << 20);
    ::_exit(kGood);
  }
  other.reset();
  auto [faults, address] = receive_descriptor(own.get());
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!faults) GTEST_SKIP() << "this kernel does not tell of missing pages";
  std::vector<std::byte> content(kPageBytes);
  MissingMemory missing;
  missing.add({address, kPageBytes, content.data()});
  ProcessPages process(std::move(faults), std::move(missing));
  EXPECT_FALSE(process.is_done());
  ASSERT_TRUE(process.bring_some().has_value());
  EXPECT_TRUE(process.is_done());
}

TEST(MissingPagesPlan, PlanIsReadAsWrittenAndMalformedPlansAreRefused) {
  const agent::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  const std::vector<MissingRange> ranges = {{2, 1, 0x7000, 0x2000, 0}, {3, 1, 0x9000, 0x1000, 0x2000}};
  ASSERT_TRUE(write_plan(folder, ranges).has_value());
  const auto back = read_plan(folder);
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[1].offset, 0x2000u);
  ASSERT_TRUE(write_plan(folder, {{2, 1, 0x7001, 0x1000, 0}}).has_value());
  EXPECT_FALSE(read_plan(folder).has_value());
  ASSERT_TRUE(write_plan(folder, {{2, 1, ~0xfffULL, 0x1000, 0}}).has_value());
  EXPECT_FALSE(read_plan(folder).has_value());
  const std::string path = folder + "/" + kPlanName;
  ASSERT_EQ(::truncate(path.c_str(), 20), 0);
  EXPECT_FALSE(read_plan(folder).has_value());
}

}  // namespace
}  // namespace ckpt::lazy_pages
