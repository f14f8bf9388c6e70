// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/driver_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim {
namespace {

constexpr std::size_t kMaxNames = 16;
constexpr std::size_t kMaxName = 64;

// The beginnings of the driver files' names, filled in before the first fork, because a child may not
// allocate memory.
struct Names {
  std::array<std::array<char, kMaxName>, kMaxNames> names{};
  std::size_t count = 0;
  void add(std::string_view name) {
    if (name.empty() || name.size() >= kMaxName || count == kMaxNames) return;
    name.copy(names[count++].data(), name.size());
  }
  [[nodiscard]] bool match(std::string_view path) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (path.starts_with(std::string_view(names[i].data()))) return true;
    }
    return false;
  }
};
Names g_driver_files;

// The layout that the kernel writes for getdents64.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t bytes;
  std::uint8_t type;
  char name[];
};

void close_if_driver_file(int folder, const char* name) {
  int number = -1;
  const char* end = name + std::strlen(name);
  if (std::from_chars(name, end, number).ptr != end || number == folder) return;
  char target[kMaxName];
  const ssize_t length = ::readlinkat(folder, name, target, sizeof target);
  if (length > 0 && g_driver_files.match({target, static_cast<std::size_t>(length)})) ::close(number);
}

void close_descriptors() {
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(Entry) char buffer[4096];
  for (;;) {
    const long filled = ::syscall(SYS_getdents64, folder, buffer, sizeof buffer);
    if (filled <= 0) break;
    for (long at = 0; at < filled;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      close_if_driver_file(folder, entry->name);
      at += entry->bytes;
    }
  }
  ::close(folder);
}

// Drops the map of a driver file. A line is "BEGIN-END rights offset device inode   PATH".
void drop_if_driver_map(std::string_view line) {
  const std::size_t path = line.find('/');
  if (path == std::string_view::npos || !g_driver_files.match(line.substr(path))) return;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const char* last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (first.ptr == last || *first.ptr != '-' || std::from_chars(first.ptr + 1, last, end, 16).ptr == last)
    return;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  (void)::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_NONE, kFlags, -1, 0);
}

void drop_maps() {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  static char buffer[8192];  // a buffer that is larger than the longest line
  std::size_t filled = 0;
  for (;;) {
    const ssize_t got = ::read(maps, buffer + filled, sizeof buffer - filled);
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
    std::string_view text(buffer, filled);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      drop_if_driver_map(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    filled = text.size();
    std::memmove(buffer, text.data(), filled);
  }
  ::close(maps);
}

}  // namespace

void drop_driver_files_in_children() noexcept {
  g_driver_files.add("/dev/nvidia");
  const char* more = std::getenv("CKPT_DRIVER_FILES");
  std::string_view left(more != nullptr ? more : "");
  while (!left.empty()) {
    const std::size_t end = left.find(',');
    g_driver_files.add(left.substr(0, end));
    left = end == std::string_view::npos ? std::string_view() : left.substr(end + 1);
  }
  at_fork_child([] {
    close_descriptors();
    drop_maps();
  });
}

}  // namespace ckpt::shim
