// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/named_memory/dump_links.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "agent/host_process/criu_image/link_paths.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxLockBytes = 16u << 20;
constexpr std::size_t kMaxOwnFiles = 1'000'000;  // maximum number of files that are searched for links

std::vector<std::byte> content_of(int file) {
  std::vector<std::byte> bytes;
  const off_t size = ::lseek(file, 0, SEEK_END);
  if (size <= 0 || static_cast<std::size_t>(size) > kMaxLockBytes) return bytes;
  bytes.resize(static_cast<std::size_t>(size));
  if (::pread(file, bytes.data(), bytes.size(), 0) != size) bytes.clear();
  return bytes;
}

// Removes the links of an unfinished dump, which are listed in the lock file. Links to other files stay.
void remove_old_links(int file) {
  const auto old = wire::decode<NamedMemory>(content_of(file));
  if (old && is_this_place(*old)) remove_links_of(*old);
}

}  // namespace

std::optional<DumpLinks> DumpLinks::try_acquire(const NamedMemory& memory, const char* lock) {
  UniqueFd file(::open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return DumpLinks();
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    return DumpLinks();
  }
  remove_old_links(file.get());
  const std::vector<std::byte> bytes = wire::encode(memory);
  (void)!::ftruncate(file.get(), 0);
  (void)!::pwrite(file.get(), bytes.data(), bytes.size(), 0);
  return DumpLinks(std::move(file));
}

void DumpLinks::release() {
  if (lock_) (void)!::ftruncate(lock_.get(), 0);
  lock_.reset();
}

void remove_own_links(pid_t root, const OwnNamespaces& own) {
  std::size_t seen = 0;
  for (const std::string& folder : own.folders()) {
    std::error_code gone;
    std::filesystem::recursive_directory_iterator item(proc_path(root, "/root" + folder), gone);
    for (; !gone && item != std::filesystem::recursive_directory_iterator() && seen < kMaxOwnFiles;
         item.increment(gone), ++seen) {
      if (is_link_name(item->path().filename().string())) ::unlink(item->path().c_str());
    }
  }
}

}  // namespace ckpt::agent::host
