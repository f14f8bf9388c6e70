// SPDX-License-Identifier: Apache-2.0
#include "agent/io/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>

namespace ckpt::agent {
namespace {

constexpr int kTracerLimitMs = 20'000;  // the tracer detaches automatically after this time

// Another process, which traces `pid` until it is ordered to exit.
class Tracer {
 public:
  explicit Tracer(pid_t pid) {
    EXPECT_EQ(::pipe2(traces_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) trace(pid);
    char can = 0;
    EXPECT_EQ(::read(traces_[0], &can, 1), 1);
    works_ = can == 'y';
  }
  ~Tracer() {
    release();
    EXPECT_EQ(::waitpid(process_, nullptr, 0), process_);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  [[nodiscard]] bool works() const { return works_; }
  void release() const { EXPECT_EQ(::write(ends_[1], "e", 1), 1); }

 private:
  [[noreturn]] void trace(pid_t pid) {
    const bool traces = ::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0;
    if (::write(traces_[1], traces ? "y" : "n", 1) != 1) ::_exit(1);
    pollfd told{ends_[0], POLLIN, 0};
    ::poll(&told, 1, kTracerLimitMs);
    ::_exit(0);
  }

  std::array<int, 2> traces_{};
  std::array<int, 2> ends_{};
  pid_t process_ = 0;
  bool works_ = false;
};

ProcessSpec sleeper() {
  ProcessSpec spec;
  spec.argv = {"/bin/sleep", "1000"};
  spec.output_path = "/dev/null";
  return spec;
}

TEST(ChildProcess, ExitIsReportedWithItsStatus) {
  asio::io_context io(1);
  std::optional<int> status;
  auto child = ChildProcess::start(io.get_executor(), sleeper(), [&status](int ended) { status = ended; });
  ASSERT_TRUE(child.has_value()) << child.error().to_string();
  (*child)->signal(SIGTERM);
  io.run();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(describe_wait_status(*status).substr(0, 9), "signal 15");
  EXPECT_FALSE((*child)->running());
}

// An ended process first belongs to its tracer. Waiting for the process would block the agent until the
// tracer detaches.
TEST(ChildProcess, TracerOfAnExitedChildDoesNotStopTheLoop) {
  asio::io_context io(1);
  std::optional<int> status;
  auto child = ChildProcess::start(io.get_executor(), sleeper(), [&status](int ended) { status = ended; });
  ASSERT_TRUE(child.has_value()) << child.error().to_string();
  const Tracer tracer((*child)->pid());
  if (!tracer.works()) GTEST_SKIP() << "this machine does not let one process trace another";
  (*child)->signal(SIGKILL);
  asio::posix::stream_descriptor ended(io, static_cast<int>(::syscall(SYS_pidfd_open, (*child)->pid(), 0)));
  bool ended_before_let_go = true;
  // The code runs after the handler of the child's own descriptor, which was readable at the same time.
  ended.async_wait(asio::posix::stream_descriptor::wait_read, [&](boost::system::error_code) {
    asio::post(io, [&] {
      ended_before_let_go = status.has_value();
      tracer.release();
    });
  });
  io.run();
  EXPECT_FALSE(ended_before_let_go) << "the loop stood still until the tracer's limit";
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(describe_wait_status(*status).substr(0, 8), "signal 9");
}

}  // namespace
}  // namespace ckpt::agent
