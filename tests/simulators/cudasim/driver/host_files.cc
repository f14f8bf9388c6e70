// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/host_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace cudasim {
namespace {

constexpr std::size_t kMapped = 4096;

}  // namespace

HostFiles& HostFiles::get() {
  static auto* files = new HostFiles;
  return *files;
}

bool HostFiles::names_threads() {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%ld/comm", ::syscall(SYS_gettid));
  std::FILE* const name = std::fopen(path, "w");
  return name != nullptr && std::fclose(name) == 0;
}

void HostFiles::open() {
  open_device();
  listen();
}

void HostFiles::open_device() {
  const int fd = static_cast<int>(::syscall(SYS_memfd_secret, O_CLOEXEC));
  if (fd < 0) return;
  void* at = ::ftruncate(fd, kMapped) == 0
                 ? ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                 : MAP_FAILED;
  if (at == MAP_FAILED) {
    ::close(fd);
    return;
  }
  device_ = fd;
  mapped_ = at;
}

void HostFiles::close_device() {
  if (device_ < 0) return;
  ::munmap(mapped_, kMapped);
  ::close(device_);
  device_ = -1;
}

// Opens a socket like the real driver's. It has the same type, and its name contains the PID namespace, the
// process and a final zero.
void HostFiles::listen() {
  if (listens_) return;
  struct stat space {};
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd < 0 || ::stat("/proc/self/ns/pid", &space) != 0) return;
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "cuda-uvmfd-%lu-%d",
                                   static_cast<unsigned long>(space.st_ino), ::getpid());
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 2 + static_cast<std::size_t>(length));
  listens_ = ::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0 && ::listen(fd, 16) == 0;
  if (!listens_) ::close(fd);
}

void HostFiles::load_profiler() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || path[0] == '\0') return;
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto start = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
  has_profiler_ = start != nullptr && start() != 0;
}

}  // namespace cudasim
