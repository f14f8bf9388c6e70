// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/migration/modes/cooperative_mode.h"

namespace ckpt::agent {
namespace {

Result<void> copy_bytes(int from, int to, std::uint64_t bytes, const std::string& what) {
  off_t offset = 0;
  while (static_cast<std::uint64_t>(offset) < bytes) {
    const ssize_t moved = ::sendfile(to, from, &offset, bytes - static_cast<std::uint64_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return Error::from_errno("Cannot copy the host state " + what);
    if (moved == 0) return Error(ErrorCode::kCorrupt, "The host state is shorter than stated (" + what + ")");
  }
  return ok();
}

}  // namespace

Result<void> save_host_state(int memory_file, std::uint64_t bytes, const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  return copy_bytes(memory_file, file.get(), bytes, "to " + path);
}

Result<UniqueFd> load_host_state(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error::from_errno("Cannot open " + path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Error::from_errno("Cannot read the size of " + path);
  CKPT_TRY(memory, make_memory_file("host-state", static_cast<std::size_t>(facts.st_size)));
  CKPT_TRYV(copy_bytes(file.get(), memory.get(), static_cast<std::uint64_t>(facts.st_size), "from " + path));
  return std::move(memory);
}

}  // namespace ckpt::agent
