// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/fence_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {
namespace {

// The state of a running fence program. Its timer may fire after the program has exited.
struct FenceState {
  bool late = false;
  bool over = false;
};

// Starts the fence program in its own process group, so that all its processes can be killed together. All
// descriptors of this process are close-on-exec.
Result<pid_t> start_fence(const std::string& program, const std::string& node) {
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  std::array<std::string, 2> words = {program, node};
  std::array<char*, 3> argv = {words[0].data(), words[1].data(), nullptr};
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), nullptr, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return Error::from_errno(failed, "Cannot start fence_command " + program);
  return pid;
}

}  // namespace

control::Task<Result<void>> run_fence_command(std::string program, std::string node,
                                              std::chrono::milliseconds deadline) {
  CKPT_CO_TRY(pid, start_fence(program, node));
  const auto executor = co_await control::asio::this_coro::executor;
  control::asio::posix::stream_descriptor ended(executor,
                                                static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  control::asio::steady_timer timer(executor, deadline);
  const auto state = std::make_shared<FenceState>();
  timer.async_wait([pid, state](boost::system::error_code cancelled) {
    if (cancelled || state->over) return;
    state->late = true;
    ::kill(-pid, SIGKILL);
  });
  int status = 0;
  // The call must not block. The descriptor may be reported as readable although the process has not exited.
  for (pid_t over = 0; over == 0 || (over < 0 && errno == EINTR);) {
    co_await ended.async_wait(control::asio::posix::stream_descriptor::wait_read, control::kTuple);
    over = ::waitpid(pid, &status, WNOHANG);
  }
  state->over = true;
  timer.cancel();
  if (state->late)
    co_return Error(ErrorCode::kTimedOut,
                    fmt::format("fence_command {} {} did not finish within {} s", program, node,
                                std::chrono::duration_cast<std::chrono::seconds>(deadline).count()));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) co_return ok();
  co_return Error(ErrorCode::kRefused,
                  fmt::format("fence_command {} {} terminated with {} {}", program, node,
                              WIFEXITED(status) ? "exit status" : "signal",
                              WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
}

}  // namespace ckpt::coordinator
