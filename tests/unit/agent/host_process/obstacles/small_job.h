// SPDX-License-Identifier: Apache-2.0
// A process 1 of a PID namespace of its own, like a job's first process. It has run the test's preparation
// and waits. Ownership: the process ends with the object. The test needs root.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <new>

#include "agent/keeper/init/pid_namespace.h"

namespace ckpt::agent::host {

class SmallJob {
 public:
  // Runs `prepare` in the process. `prepare` may start children, and returns false if the environment does
  // not allow the preparation.
  explicit SmallJob(const std::function<bool()>& prepare) {
    // A descriptor would be inherited and appear among the found files.
    void* page = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    auto* report = new (page) Report(kNothing);
    const auto forked = keeper::fork_into_pid_namespace();
    EXPECT_TRUE(forked.has_value()) << forked.error().to_string();
    pid_ = forked.has_value() ? *forked : 0;
    if (forked.has_value() && pid_ == 0) become(*report, prepare);
    siginfo_t ended{};
    while (pid_ > 0 && *report == kNothing && ended.si_pid == 0) {
      ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
      ::sched_yield();
    }
    is_there_ = *report == kDone;
    ::munmap(page, sizeof(Report));
  }
  ~SmallJob() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  SmallJob(const SmallJob&) = delete;
  SmallJob& operator=(const SmallJob&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool is_there() const { return is_there_; }

  // Forks a child that does `work` and waits; returns false on failure. Call this function within `prepare`.
  static bool fork_and(const std::function<bool()>& work) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    if (::fork() == 0) {
      ::close(ends[0]);
      const bool done = work();
      if (done) (void)!::write(ends[1], "r", 1);
      ::close(ends[1]);
      while (done) ::pause();
      ::_exit(1);
    }
    ::close(ends[1]);
    char ready = 0;
    const bool done = ::read(ends[0], &ready, 1) == 1;
    ::close(ends[0]);
    return done;
  }

 private:
  enum State : int { kNothing, kDone, kNotDone };
  using Report = std::atomic<int>;

  [[noreturn]] static void become(Report& report, const std::function<bool()>& prepare) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
    ::close_range(3, ~0U, 0);
    if (::chdir("/") != 0) ::_exit(1);
    report = prepare() ? kDone : kNotDone;
    for (;;) ::pause();
  }

  pid_t pid_ = 0;
  bool is_there_ = false;
};

}  // namespace ckpt::agent::host
