// SPDX-License-Identifier: Apache-2.0
// A child process of a test that has prepared something and waits, for code that inspects other processes.
// Threads: one. Ownership: the process is killed with its object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace ckpt::agent::host {

// A child that has called `prepare` and waits. The child closes the descriptors that the test itself
// inherited, since they would interfere.
class Child {
 public:
  // Starts the child. `kept` is a descriptor of the test that the child also has, as its descriptor 4; -1
  // means none.
  explicit Child(const std::function<void()>& prepare, int kept = -1) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int high = kept < 0 ? -1 : ::fcntl(kept, F_DUPFD, 100);
      const int null = ::open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
      ::dup2(ends[1], 3);
      if (kept >= 0) ::dup2(high, 4);
      ::close_range(kept < 0 ? 4 : 5, ~0U, 0);
      if (::chdir("/") != 0) ::_exit(1);
      prepare();
      (void)!::write(3, "r", 1);
      ::close(3);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char ready = 0;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    EXPECT_EQ(::read(ends[0], &ready, 1), 0);  // the child has closed its end, which therefore does not
                                               // appear among the found descriptors
    ::close(ends[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace ckpt::agent::host
