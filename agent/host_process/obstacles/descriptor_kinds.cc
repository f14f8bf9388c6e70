// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/descriptor_kinds.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::string_view kNamelessStart = "anon_inode:";
constexpr std::string_view kDeletedEnd = " (deleted)";
constexpr std::size_t kMaxFdinfo = 1u << 16;
constexpr const char* kCloseDescriptor = ": let the program close it before the move";

struct FileSystem {
  unsigned long magic;
  const char* what;
};
// The magic numbers of kernel file systems whose objects cannot be restored, with a text for the user. These
// file systems are not mounted, or not mounted where the program's files are.
constexpr std::array<FileSystem, 9> kOfTheKernel = {{{0x5345434d, "secret memory (memfd_secret)"},
                                                     {0x19800202, "a POSIX message queue"},
                                                     {0x6e736673, "a namespace"},
                                                     {0x50494446, "a process (pidfd)"},
                                                     {0xcafe4a11, "a BPF object"},
                                                     {0x444d4142, "a device buffer (dmabuf)"},
                                                     {0x454d444d, "device memory"},
                                                     {0x474d454d, "guest memory (KVM)"},
                                                     {0x09041934, "a kernel object"}}};
constexpr unsigned long kHugePages = 0x958458f6;

// Returns the number after "NAME:" in /proc/PID/fdinfo/N.
std::optional<long> fdinfo_number(pid_t pid, int number, const std::string& name, int base = 10) {
  const Result<std::string> info = read_file(proc_path(pid, "/fdinfo/") + std::to_string(number), kMaxFdinfo);
  if (!info.has_value()) return std::nullopt;
  const std::string text = "\n" + *info;
  const std::size_t at = text.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::strtol(text.c_str() + at + name.size() + 2, nullptr, base);
}

// Returns the reason why CRIU cannot dump a timer. CRIU reports "Unknown clock type".
std::string why_no_timer(pid_t pid, int number) {
  constexpr std::array<long, 3> kClocks = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
  const auto clock = fdinfo_number(pid, number, "clockid");
  if (!clock || std::find(kClocks.begin(), kClocks.end(), *clock) != kClocks.end()) return {};
  return "is a timer of clock " + std::to_string(*clock) + ", which CRIU cannot restore" + kCloseDescriptor;
}

// Returns the reason why CRIU cannot dump a pidfd. CRIU reports "PIDFD_THREAD flag is currently not
// supported".
std::string why_no_pidfd(pid_t pid, int number, const std::set<pid_t>& tree) {
  constexpr long kThread = O_EXCL;
  if ((fdinfo_number(pid, number, "flags", 8).value_or(0) & kThread) != 0)
    return std::string("refers to a thread (pidfd), which CRIU cannot restore") + kCloseDescriptor;
  const auto target = static_cast<pid_t>(fdinfo_number(pid, number, "Pid").value_or(-1));
  if (target <= 0 || tree.contains(target) || ::kill(target, 0) != 0) return {};
  return "refers to process " + std::to_string(target) + " outside of the job (pidfd)" + kCloseDescriptor;
}

bool is_known_kind(std::string_view kind) {
  static constexpr std::array<std::string_view, 6> kKnown = {"[eventfd]", "[eventpoll]", "[signalfd]",
                                                             "[timerfd]", "[pidfd]",     "inotify"};
  return std::find(kKnown.begin(), kKnown.end(), kind) != kKnown.end();
}

// Checks whether the path is a name that the kernel assigns to one of its objects. Such a name is directly in
// the root folder and counts as deleted, and its device is not that of the root folder.
bool is_name_of_kernel(pid_t pid, const std::string& path, const std::string& opened_as) {
  if (!path.ends_with(kDeletedEnd) || path.find('/', 1) < path.size() - kDeletedEnd.size()) return false;
  struct stat file {};
  struct stat root {};
  return ::stat(opened_as.c_str(), &file) == 0 && ::stat(proc_path(pid, "/root/").c_str(), &root) == 0 &&
         file.st_dev != root.st_dev;
}

}  // namespace

std::string why_not_nameless(pid_t pid, int number, const std::string& link, const std::set<pid_t>& tree) {
  if (!link.starts_with(kNamelessStart))
    return "is " + link + ", which cannot be restored" + kCloseDescriptor;
  const std::string kind = link.substr(kNamelessStart.size());
  if (!is_known_kind(kind)) return "is " + kind + ", which cannot be restored" + kCloseDescriptor;
  if (kind == "[timerfd]") return why_no_timer(pid, number);
  if (kind == "[pidfd]") return why_no_pidfd(pid, number, tree);
  return {};
}

std::string why_not_mapped(const std::string& name) {
  if (!name.starts_with(kNamelessStart)) return {};
  return "has " + name.substr(kNamelessStart.size()) +
         " mapped, which cannot be restored: let the program unmap it before the move";
}

std::string why_not_a_file(pid_t pid, const std::string& path, const std::string& opened_as) {
  struct statfs facts {};
  if (::statfs(opened_as.c_str(), &facts) != 0) return {};
  const auto magic = static_cast<unsigned long>(facts.f_type);
  const auto* const known = std::find_if(kOfTheKernel.begin(), kOfTheKernel.end(),
                                         [magic](const FileSystem& system) { return system.magic == magic; });
  if (known != kOfTheKernel.end())
    return std::string("is ") + known->what + ", which cannot be restored" + kCloseDescriptor;
  if (path.starts_with("/memfd:"))
    return magic == kHugePages
               ? std::string("is a memory file of huge pages, which CRIU cannot save") + kCloseDescriptor
               : "";
  const bool shared_memory = path.starts_with("/dev/zero") || path.starts_with("/SYSV") ||
                             path.starts_with("/anon_hugepage") || path.starts_with("/[aio]");
  if (shared_memory || !is_name_of_kernel(pid, path, opened_as)) return {};
  return "is a kernel object (" + path.substr(1, path.size() - 1 - kDeletedEnd.size()) +
         "), which cannot be restored" + kCloseDescriptor;
}

// Returns the reason why CRIU cannot dump a pipe. CRIU reports "The packetized mode for pipes is not
// supported yet".
std::string why_not_pipe(pid_t pid, int number) {
  if ((fdinfo_number(pid, number, "flags", 8).value_or(0) & O_DIRECT) == 0) return {};
  return std::string("is a pipe in packet mode (O_DIRECT), which CRIU cannot save") + kCloseDescriptor;
}

}  // namespace ckpt::agent::host
