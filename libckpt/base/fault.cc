// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ckpt {
namespace {

// The buffer has a fixed size, because a fault point may be reached in a user's process and must not
// allocate.
char fault_role[128];

const char* fault_folder() noexcept {
  static const char* const folder = std::getenv("CKPT_FAULT_DIR");
  return folder;
}

}  // namespace

std::string_view to_string(FaultPoint point) noexcept {
  switch (point) {
#define CKPT_FAULT_POINT(number, name) \
  case FaultPoint::name:               \
    return #name;
#include "libckpt/base/fault_points.def"
#undef CKPT_FAULT_POINT
  }
  return "unknown";
}

void set_fault_role(std::string role) {
  std::snprintf(fault_role, sizeof fault_role, "%s", role.c_str());
}

void fault_point(FaultPoint point) noexcept {
  const char* folder = fault_folder();
  if (folder == nullptr) return;
  char path[512];
  std::snprintf(path, sizeof path, "%s/%s.%u", folder, fault_role, static_cast<unsigned>(point));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char word[8] = {};
  const ssize_t got = ::read(fd, word, sizeof word - 1);
  ::close(fd);
  ::unlink(path);
  const bool stop = got >= 4 && std::strncmp(word, "stop", 4) == 0;
  // The signal is sent to this thread. If another thread received SIGSTOP, this thread would continue for a
  // moment.
  ::syscall(SYS_tgkill, ::getpid(), ::gettid(), stop ? SIGSTOP : SIGKILL);
}

}  // namespace ckpt
