// SPDX-License-Identifier: Apache-2.0
// gpumigrate-mover: moves the memory of jobs on one GPU. The agent starts the program with one end of a
// socketpair as descriptor 3. The program exits when its agent does. It logs to stderr, which the agent
// redirects to mover-N.log. With --probe it only reports the features that it could use.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>

#include <string_view>

#include "agent/mover/heap.h"
#include "agent/mover/mover.h"
#include "agent/mover/probe.h"
#include "libckpt/datapath/transport/ucx_guard.h"
#include "libckpt/net/control/log.h"
#include "libckpt/net/log/daemon_log.h"
#include "libckpt/protocol/wire/mover_values.h"

int main(int argc, char** argv) {
  ckpt::mover::bound_heap();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // makes a write that exceeds the file size limit fail like a write to a full
                               // disk
  (void)ckpt::logging::open_log({});  // cannot fail, because the log goes to standard error, which is already
                                      // open
  if (argc == 2 && std::string_view(argv[1]) == "--probe") {
    ckpt::mover::print_probe();
    return 0;
  }
  struct stat status {};
  if (::fstat(ckpt::wire::mover::kSocketFd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    spdlog::error("this program must be started by an agent: descriptor {} is not a socket",
                  ckpt::wire::mover::kSocketFd);
    return 64;
  }
  ::fcntl(ckpt::wire::mover::kSocketFd, F_SETFD, FD_CLOEXEC);
  if (const auto guarded = ckpt::transport::check_ucx_guard(); !guarded)
    spdlog::warn("{}: a lost connection may crash this mover and end its migrations",
                 guarded.error().to_string());
  ckpt::mover::Mover mover{ckpt::UniqueFd(ckpt::wire::mover::kSocketFd)};
  const ckpt::Result<void> ended = mover.run();
  if (ended.error().code() == ckpt::ErrorCode::kUnavailable) {
    spdlog::info("the agent has disconnected: exiting");
    return 0;
  }
  spdlog::error("ending: {}", ended.error().to_string());
  return 1;
}
