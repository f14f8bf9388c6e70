// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/backing/backing.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED  // Linux 6.4 has this feature; older headers lack the constant
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

namespace cudasim {
namespace {

// A scope during which threads that write to the range wait.
class WriteStop {
 public:
  WriteStop(void* address, std::uint64_t bytes) {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(address);
    for (const int mode : {0, UFFD_USER_MODE_ONLY}) {
      fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | mode));
      if (fd_ >= 0) break;
    }
    uffdio_api api{};
    api.api = UFFD_API;
    api.features =
        UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED;
    uffdio_register range{};
    range.range = {at, bytes};
    range.mode = UFFDIO_REGISTER_MODE_WP;
    uffdio_writeprotect protect{};
    protect.range = {at, bytes};
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    if (fd_ < 0 || ::ioctl(fd_, UFFDIO_API, &api) != 0 || ::ioctl(fd_, UFFDIO_REGISTER, &range) != 0) return;
    ::ioctl(fd_, UFFDIO_WRITEPROTECT, &protect);
  }
  ~WriteStop() {
    if (fd_ >= 0) ::close(fd_);  // wakes the writers
  }
  WriteStop(const WriteStop&) = delete;
  WriteStop& operator=(const WriteStop&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace

bool make_private(void* address, std::uint64_t bytes) {
  void* own = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  const WriteStop stop(address, bytes);
  std::memcpy(own, address, bytes);
  if (::mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) != MAP_FAILED) return true;
  ::munmap(own, bytes);
  return false;
}

bool make_shared(void* address, std::uint64_t bytes, int fd) {
  const WriteStop stop(address, bytes);
  const auto* from = static_cast<const unsigned char*>(address);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t part = ::pwrite(fd, from + done, bytes - done, static_cast<off_t>(done));
    if (part <= 0) return false;
    done += static_cast<std::uint64_t>(part);
  }
  return ::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
}

}  // namespace cudasim
