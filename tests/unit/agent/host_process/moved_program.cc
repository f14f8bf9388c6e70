// SPDX-License-Identifier: Apache-2.0
// A program that is moved while it runs. It has memory, threads, a timer, signals, an open file, a working
// directory and a child. It checks itself and prints the result:
//   SIGUSR1: "state N pid P child C folder F offset O memory good|damaged", after every thread and the timer
//   have continued
//   SIGUSR2: dies of a segmentation fault;  SIGTERM: ends with code 7
// argv[1] is one of: "plain"; "connected PATH": with a connection to the Unix socket PATH; "listening": on a
// TCP port of 127.0.0.1; "talking": with a TCP connection to itself; "untimed": without the timer;
// "memories": with mappings of many kinds; "aligned": with a thread whose stack pointer is at the start of a
// page.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kWords = 1u << 20;
std::array<std::atomic<std::uint64_t>, 4> steps;
std::atomic<std::uint64_t> ticks{0};

void on_alarm(int) {
  ticks.fetch_add(1);
}

std::uint64_t word(std::size_t i) {
  return (i + 1) * 0x9e3779b97f4a7c15u;
}

void go_on(std::atomic<std::uint64_t>& step) {
  for (;;) {
    step.fetch_add(1);
    ::usleep(500);
  }
}

// Waits forever, with its stack pointer at the start of a page.
[[noreturn]] void wait_at_page_begin(std::atomic<bool>& waits) {
  waits = true;
  for (;;) {
    long result = SYS_pause;
    asm volatile("mov %%rsp, %%rbx\n\tand $-4096, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                 : "+a"(result)
                 :
                 : "rbx", "rcx", "r11", "memory");
  }
}

void start_aligned_thread() {
  std::atomic<bool> waits{false};
  std::thread(wait_at_page_begin, std::ref(waits)).detach();
  while (!waits) ::usleep(100);
}

// Waits until every thread and the timer have run since the call.
void see_all_running(bool timed) {
  std::vector<std::uint64_t> before;
  for (const auto& step : steps) before.push_back(step.load());
  const std::uint64_t ticks_before = ticks.load();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    while (steps[i].load() < before[i] + 2) ::usleep(100);
  }
  while (timed && ticks.load() < ticks_before + 2) ::usleep(100);
}

int connect_to(const char* path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? socket : -1;
}

int listen_somewhere() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  return bound && ::listen(socket, 1) == 0 ? socket : -1;
}

bool talk_to_itself() {
  const int listener = listen_somewhere();
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (listener < 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return false;
  const int end = ::socket(AF_INET, SOCK_STREAM, 0);
  return ::connect(end, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
         ::accept(listener, nullptr, nullptr) >= 0;
}

pid_t start_child() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (;;) ::pause();
}

// Maps private memory of 2 MiB in the ways that programs use: partial, locked, without access rights, read
// only, with guards.
void map_memories() {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  constexpr std::size_t kPage = 4096;
  constexpr int kInstallGuards = 102;  // MADV_GUARD_INSTALL, Linux 6.13
  const auto map = [] {
    return static_cast<char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  char* const in_part = map();
  for (std::size_t at = 0; at < kBytes; at += 2 * kPage) in_part[at] = 1;
  (void)::mlock(std::memset(map(), 2, kBytes), kBytes);
  (void)::mprotect(std::memset(map(), 3, kBytes), kBytes, PROT_NONE);
  const volatile char* const zeros = map();
  for (std::size_t at = 0; at < kBytes; at += kPage) (void)zeros[at];
  (void)::madvise(static_cast<char*>(std::memset(map(), 4, kBytes)) + kBytes / 2, kBytes / 4, kInstallGuards);
  (void)::madvise(std::memset(map(), 5, kBytes), kBytes / 2, MADV_DONTNEED);
}

void tell_state(int number, int file, pid_t child, bool timed, const std::vector<std::uint64_t>& memory) {
  see_all_running(timed);
  bool good = true;
  for (std::size_t i = 0; i < memory.size(); ++i) good = good && memory[i] == word(i);
  (void)!::write(file, "x", 1);
  char folder[4096] = {};
  (void)!::getcwd(folder, sizeof folder);
  std::printf("state %d pid %d child %s folder %s offset %ld memory %s\n", number, ::getpid(),
              ::kill(child, 0) == 0 ? "alive" : "gone", folder, static_cast<long>(::lseek(file, 0, SEEK_CUR)),
              good ? "good" : "damaged");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  sigset_t orders;
  sigemptyset(&orders);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&orders, number);
  ::sigprocmask(SIG_BLOCK, &orders, nullptr);
  ::signal(SIGALRM, on_alarm);
  const pid_t child = start_child();
  const itimerval interval{{0, 5000}, {0, 5000}};
  const bool timed = argc < 2 || std::strcmp(argv[1], "untimed") != 0;
  if (timed) ::setitimer(ITIMER_REAL, &interval, nullptr);
  const int file = ::open("data.txt", O_RDWR | O_CREAT, 0600);
  if (argc > 2 && std::strcmp(argv[1], "connected") == 0 && connect_to(argv[2]) < 0) return 2;
  if (argc > 1 && std::strcmp(argv[1], "listening") == 0 && listen_somewhere() < 0) return 2;
  if (argc > 1 && std::strcmp(argv[1], "talking") == 0 && !talk_to_itself()) return 2;
  std::vector<std::uint64_t> memory(kWords);
  for (std::size_t i = 0; i < kWords; ++i) memory[i] = word(i);
  if (argc > 1 && std::strcmp(argv[1], "memories") == 0) map_memories();
  if (argc > 1 && std::strcmp(argv[1], "aligned") == 0) start_aligned_thread();
  for (auto& step : steps) std::thread(go_on, std::ref(step)).detach();
  std::printf("ready\n");
  for (int number = 1;; ++number) {
    int order = 0;
    ::sigwait(&orders, &order);
    if (order == SIGTERM) ::_exit(7);
    if (order == SIGUSR2) {
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
    }
    tell_state(number, file, child, timed, memory);
  }
}
