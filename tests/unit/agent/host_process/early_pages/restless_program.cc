// SPDX-License-Identifier: Apache-2.0
// A program that changes its memory all the time. It maps, unmaps, moves, protects and releases parts of it,
// forks, and shares its memory with processes that write into it. It also grows its stack and heap, and
// executes itself again. Two threads write meanwhile. A seed determines its behavior, except for how its
// threads and processes interleave.
//   restless_program SEED [child]: prints "ready" once it has its memory. A child of its own does the same,
//   but for exec.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 4096;
constexpr std::size_t kMaxPages = 600;  // the most pages of one change: a huge page and some more
char* const kMemory = reinterpret_cast<char*>(0x7000'0000'0000);
// Memory that changes rarely: small pieces are mapped again, as an allocator does; the rest is written
// slowly.
constexpr std::size_t kQuietPages = 8192;
constexpr std::size_t kPiecePages = 16;
char* const kQuietMemory = reinterpret_cast<char*>(0x7100'0000'0000);

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t below(std::uint64_t end) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 11) % end;
  }
  char* page() { return kMemory + below(kPages) * kPage; }
  char* quiet_page() { return kQuietMemory + below(kQuietPages) * kPage; }

 private:
  std::uint64_t state_;
};

thread_local sigjmp_buf before_store;

void on_fault(int) {
  siglongjmp(before_store, 1);
}

void store(char* at, std::uint64_t value) {
  if (sigsetjmp(before_store, 0) == 0) std::memcpy(at, &value, sizeof value);
}

// Lets the kernel store into memory. The kernel reports an error where it cannot.
void let_kernel_store(char* at) {
  (void)::getrandom(at, 8, GRND_NONBLOCK);
}

void write_always(std::uint64_t seed) {
  Random random(seed);
  for (std::uint64_t i = 1;; ++i) {
    char* const page = random.below(4) == 0 ? random.page() : random.quiet_page();
    char* const at = page + random.below(kPage / 8) * 8;
    if (random.below(4) == 0) {
      let_kernel_store(at);
    } else {
      store(at, i);
    }
    if (i % 4 == 0) ::usleep(1000);
  }
}

// Runs in a process that shares the memory of the program. It uses no state of the C library, since the
// program may use that state.
int write_from_another_process(void* seed) {
  Random random(reinterpret_cast<std::uint64_t>(seed));
  for (int i = 0; i < 200; ++i) {
    ::syscall(SYS_getrandom, random.page(), 8, GRND_NONBLOCK);
    if (i % 40 == 0) ::syscall(SYS_sched_yield);
  }
  ::syscall(SYS_exit, 0);
  return 0;
}

void share_memory(Random& random, int flags) {
  alignas(16) static std::array<std::array<char, 1 << 14>, 4> stacks;
  static std::size_t next = 0;
  char* const end = stacks[next++ % stacks.size()].data() + sizeof stacks[0];
  const pid_t child = ::clone(write_from_another_process, end, CLONE_VM | flags,
                              reinterpret_cast<void*>(random.below(1u << 30)));
  // Without the wait, a stack would also be used by another process.
  if (child > 0) ::waitpid(child, nullptr, __WALL);
}

void fork_and_write(Random& random) {
  if (::fork() != 0) return;
  for (int i = 0; i < 50; ++i) let_kernel_store(random.page());
  ::_exit(0);
}

void use_stack(Random& random, int depth) {
  std::array<volatile char, 1 << 14> here;
  here[random.below(here.size())] = 1;
  if (depth > 0) use_stack(random, depth - 1);
  here[0] = 1;
}

void use_heap(Random& random) {
  const auto bytes = static_cast<intptr_t>((1 + random.below(64)) * kPage);
  char* const begin = static_cast<char*>(::sbrk(bytes));
  if (begin == reinterpret_cast<char*>(-1)) return;
  std::memset(begin, 5, static_cast<std::size_t>(bytes));
  if (random.below(2) == 0) ::sbrk(-bytes);
}

void write_through_proc(Random& random) {
  const int memory = ::open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
  const std::uint64_t value = random.below(1u << 30);
  (void)!::pwrite(memory, &value, sizeof value, reinterpret_cast<off_t>(random.page()));
  ::close(memory);
}

void map(char* at, std::size_t bytes, int rights) {
  ::mmap(at, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void fill(Random& random, char* at, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kPage) store(at + done, random.below(1u << 30));
}

void replace_piece(Random& random) {
  char* const at = kQuietMemory + random.below(kQuietPages / kPiecePages) * kPiecePages * kPage;
  map(at, kPiecePages * kPage, PROT_READ | PROT_WRITE);
  store(at + random.below(kPiecePages) * kPage, random.below(1u << 30));
}

void change(Random& random) {
  const std::size_t bytes = (1 + random.below(kMaxPages)) * kPage;
  char* const at = kMemory + random.below(kPages - bytes / kPage) * kPage;
  char* const to = kMemory + random.below(kPages - bytes / kPage) * kPage;
  constexpr std::array<int, 4> kRights{PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
  constexpr std::array<int, 7> kAdvice{MADV_DONTNEED,   MADV_FREE,    MADV_HUGEPAGE, MADV_NOHUGEPAGE,
                                       25 /*COLLAPSE*/, MADV_PAGEOUT, MADV_COLD};
  switch (random.below(16)) {
    case 0:
      map(at, bytes, kRights[random.below(kRights.size())]);
      break;
    case 1:
    case 2:
      map(at, bytes, PROT_READ | PROT_WRITE);
      fill(random, at, bytes);
      break;
    case 3:
      ::munmap(at, bytes);
      break;
    case 4:
      ::mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
      break;
    case 5:
      ::mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
      break;
    case 6:
      ::mremap(at, bytes, bytes + kPage * random.below(64), 0);
      break;
    case 7:
      ::mprotect(at, bytes, kRights[random.below(kRights.size())]);
      break;
    case 8:
    case 9:
      ::madvise(at, bytes, kAdvice[random.below(kAdvice.size())]);
      break;
    case 10:
      use_heap(random);
      write_through_proc(random);
      break;
    case 11:
      if (random.below(2) == 0) use_stack(random, static_cast<int>(random.below(40)));
      share_memory(random, random.below(2) == 0 ? SIGCHLD : CLONE_VFORK | SIGCHLD);
      break;
    case 12:
      if (random.below(4) == 0) fork_and_write(random);
      fill(random, at, bytes / 8);
      break;
    default:
      replace_piece(random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_NODEFER;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  ::signal(SIGCHLD, SIG_IGN);
  const std::string seed_text = argc > 1 ? argv[1] : "1";
  auto seed = std::strtoull(seed_text.c_str(), nullptr, 10);
  bool is_child = argc > 2;
  if (!is_child && ::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    is_child = true;
    seed += 1000;
  }
  Random random(seed);
  map(kMemory, kPages * kPage, PROT_READ | PROT_WRITE);
  map(kQuietMemory, kQuietPages * kPage, PROT_READ | PROT_WRITE);
  for (std::size_t page = 0; page < kPages; page += 2) store(kMemory + page * kPage, page + 1);
  for (std::size_t page = 0; page < kQuietPages; ++page) store(kQuietMemory + page * kPage, page + 1);
  std::thread first(write_always, seed + 1);
  std::thread second(write_always, seed + 2);
  if (!is_child) (void)!::write(1, "ready\n", 6);
  const std::string next = std::to_string(seed + 7);
  for (;;) {
    change(random);
    ::usleep(static_cast<useconds_t>(random.below(1500)));
    if (!is_child && random.below(500) == 0)
      ::execl("/proc/self/exe", argv[0], next.c_str(), "child", nullptr);
  }
}
