// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/program_fd.h"

#include <fcntl.h>

namespace ckpt {

Result<UniqueFd> copy_beyond_program(int fd) {
  // A descriptor number above those that programs usually watch with select(). Some numbers above it are
  // free.
  constexpr int kBeyondTheProgram = 512;
  for (const int from : {kBeyondTheProgram, 3}) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, from));
    if (copy) return copy;
  }
  return Error::from_errno("Copying a descriptor");
}

UniqueFd move_beyond_program(UniqueFd fd) {
  if (!fd) return fd;
  Result<UniqueFd> copy = copy_beyond_program(fd.get());
  return copy.has_value() ? *std::move(copy) : std::move(fd);
}

}  // namespace ckpt
