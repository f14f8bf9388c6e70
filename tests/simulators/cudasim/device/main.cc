// SPDX-License-Identifier: Apache-2.0
// cudasim-device: the process behind one CUDA context of the software driver. libcuda.so.1 starts it with its
// socket as descriptor 3. Do not start it by hand.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/simulators/cudasim/device/executor.h"

namespace {

constexpr int kSocket = 3;

// Leaves the program's process group, terminal and descriptors. Ctrl-C in the terminal must not reach a
// device, and the program's pipes must close when the program exits.
void detach() {
  const pid_t child = ::fork();
  if (child != 0) ::_exit(child < 0 ? 1 : 0);
  ::setsid();
  ::close_range(kSocket + 1, ~0U, 0);
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  const char* log = std::getenv("CUDASIM_LOG");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int output = log != nullptr ? ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  ::dup2(null, 0);
  ::dup2(output >= 0 ? output : null, 1);
  ::dup2(output >= 0 ? output : null, 2);
  ::signal(SIGPIPE, SIG_IGN);
  rlimit files{};  // each allocation needs one descriptor
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (::chdir("/") != 0) ::_exit(1);
}

}  // namespace

int main() {
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(kSocket, SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    std::fputs(
        "cudasim-device is started by cudasim's libcuda.so.1 (see tests/simulators/cudasim/README.md)\n",
        stderr);
    return 64;
  }
  detach();
  cudasim::Executor::serve(kSocket);
  ::_exit(0);  // the streams' threads run until the process exits
}
