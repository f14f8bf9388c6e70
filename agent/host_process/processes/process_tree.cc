// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/process_tree.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/host_process/processes/time_limit.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/machine/memory_left.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxProcText = 1u << 20;

void append_children(pid_t pid, std::vector<pid_t>& list) {
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(proc_path(pid, "/task"), gone)) {
    const Result<std::string> children = read_file((thread.path() / "children").string(), kMaxProcText);
    if (!children.has_value()) continue;
    std::istringstream text(*children);
    for (pid_t child = 0; text >> child;) list.push_back(child);
  }
}

// Returns the numbers after "NAME:" in /proc/PID/status, up to the end of the line.
std::vector<std::uint64_t> status_numbers(const std::string& status, const std::string& name, int base) {
  std::vector<std::uint64_t> numbers;
  const std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return numbers;
  const std::size_t begin = at + name.size() + 2;
  const char* from = status.data() + begin;
  const char* end = status.data() + std::min(status.find('\n', begin), status.size());
  while (from < end) {
    std::uint64_t number = 0;
    const auto parsed = std::from_chars(from, end, number, base);
    if (parsed.ec == std::errc()) numbers.push_back(number);
    from = parsed.ec == std::errc() ? parsed.ptr : from + 1;
  }
  return numbers;
}

Result<std::string> status_of(pid_t pid) {
  Result<std::string> text = read_file(proc_path(pid, "/status"), kMaxProcText);
  if (text.has_value()) return text;
  return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid) + " has ended");
}

// Returns the process's id in its own PID namespace.
pid_t innermost_id_of(pid_t pid) {
  const Result<std::string> status = status_of(pid);
  if (!status.has_value()) return pid;
  const auto ids = status_numbers(*status, "NSpid", 10);
  return ids.empty() ? pid : static_cast<pid_t>(ids.back());
}

using FileId = std::pair<dev_t, ino_t>;

// Checks for memory that CRIU numbers together with the pages of the process. System V segments are not: CRIU
// saves them with the IPC namespace, after all processes.
bool is_memory_file(std::string_view name) {
  return name.starts_with("/memfd:") || name.starts_with("/dev/zero (deleted)");
}

// Adds to `found` the memory that process `pid` shares without a file's name: shared mappings and open memory
// files.
void add_shared_memory(pid_t pid, std::set<FileId>& found) {
  std::error_code gone;
  std::filesystem::directory_iterator file(proc_path(pid, "/fd"), gone);
  for (; !gone && file != std::filesystem::directory_iterator(); file.increment(gone)) {
    std::error_code unreadable;
    const std::string target = std::filesystem::read_symlink(file->path(), unreadable).string();
    struct stat facts {};
    if (!unreadable && is_memory_file(target) && ::stat(file->path().c_str(), &facts) == 0)
      found.emplace(facts.st_dev, facts.st_ino);
  }
  std::ifstream maps(proc_path(pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    // A line has the form "7f05d87cd000-7f05d88cd000 rw-s 00000000 00:01 1620795    /dev/zero (deleted)"
    // (proc_pid_maps(5)).
    const std::size_t name = line.find('/');
    if (name == std::string::npos || !is_memory_file(std::string_view(line).substr(name))) continue;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned long long inode = 0;
    char shared = 0;
    if (std::sscanf(line.c_str(), "%*s %*3c%c %*s %x:%x %llu", &shared, &major, &minor, &inode) == 4 &&
        shared == 's')
      found.emplace(makedev(major, minor), inode);
  }
}

// Checks whether a process left the tree. A job's children start and exit while its tree is read, and a child
// that has exited no longer belongs to the tree. The root is a keeper's child and stays until the keeper
// reaps it.
bool left_meanwhile(pid_t pid, pid_t root) {
  return pid != root && ::kill(pid, 0) != 0 && errno == ESRCH;
}

// Returns the maximum number of bytes that a dump of the process writes.
Result<std::uint64_t> memory_of(pid_t pid) {
  CKPT_TRY(status, status_of(pid));
  std::uint64_t kib = 0;
  // RssFile counts the private changed pages of files.
  for (const char* name : {"RssAnon", "RssShmem", "VmSwap", "RssFile"}) {
    for (const std::uint64_t number : status_numbers(status, name, 10)) kib += number;
  }
  return kib << 10;
}

std::uint64_t mappings_of(pid_t pid) {
  std::ifstream maps(proc_path(pid, "/maps"));
  return static_cast<std::uint64_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

bool all_are(const std::vector<std::uint64_t>& numbers, std::uint64_t wanted) {
  return numbers.size() == 4 &&
         std::all_of(numbers.begin(), numbers.end(), [&](auto n) { return n == wanted; });
}

}  // namespace

std::string proc_path(pid_t pid, const std::string& rest) {
  return "/proc/" + std::to_string(pid) + rest;
}

Result<std::vector<pid_t>> processes_of(pid_t root) {
  if (root <= 1 || ::kill(root, 0) != 0)
    return Error(ErrorCode::kNotFound, "Process " + std::to_string(root) + " has ended");
  std::vector<pid_t> list{root};
  for (std::size_t next = 0; next < list.size(); ++next) {
    append_children(list[next], list);
    if (list.size() > kMaxProcesses)
      return Error(ErrorCode::kRefused,
                   "The job has more than " + std::to_string(kMaxProcesses) + " processes");
  }
  return list;
}

std::vector<pid_t> line_of(pid_t pid) {
  std::vector<pid_t> line{pid};
  while (line.back() > 1 && line.size() < kMaxProcesses) {
    const Result<std::string> status = status_of(line.back());
    if (!status.has_value()) break;
    const std::vector<std::uint64_t> parent = status_numbers(*status, "PPid", 10);
    if (parent.empty() || parent.front() == 0) break;
    line.push_back(static_cast<pid_t>(parent.front()));
  }
  return line;
}

std::uint64_t start_ticks_of(pid_t pid) {
  constexpr int kField = 22;
  const Result<std::string> stat = read_file(proc_path(pid, "/stat"), 4096);
  const std::size_t name_end = stat.has_value() ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat->substr(name_end + 1));
  std::string field;
  for (int number = 3; number < kField; ++number) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

uid_t user_of(pid_t pid) {
  constexpr uid_t kNobody = 65534;
  const Result<std::string> status = status_of(pid);
  if (!status.has_value()) return kNobody;
  const auto ids = status_numbers(*status, "Uid", 10);
  return ids.empty() ? kNobody : static_cast<uid_t>(ids.front());
}

bool has_ended(pid_t pid) {
  const Result<std::string> status = status_of(pid);
  if (!status.has_value()) return true;
  // The first thread may have exited before the other threads.
  for (const std::uint64_t threads : status_numbers(*status, "Threads", 10)) {
    if (threads > 1) return false;
  }
  // An exiting process releases its working folder before it waits for its parent.
  std::error_code failed;
  (void)std::filesystem::read_symlink(proc_path(pid, "/cwd"), failed);
  return failed == std::errc::no_such_file_or_directory || failed == std::errc::no_such_process;
}

bool is_stopped(pid_t pid) {
  const Result<std::string> status = status_of(pid);
  return status.has_value() && status->find("\nState:\tT (stopped)") != std::string::npos;
}

bool withstands(pid_t pid, int signal) {
  const Result<std::string> status = status_of(pid);
  if (!status.has_value()) return false;
  for (const char* set : {"SigCgt", "SigIgn", "SigBlk"}) {
    const std::vector<std::uint64_t> signals = status_numbers(*status, set, 16);
    if (signals.size() == 1 && (signals[0] >> (signal - 1) & 1) != 0) return true;
  }
  return false;
}

Result<void> resume_source(pid_t root, const std::set<pid_t>& stopped) {
  CKPT_TRY(list, processes_of(root));
  // Children are continued first, so that no running parent sees its children stopped.
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    if (!stopped.empty() && stopped.contains(innermost_id_of(*it))) continue;
    if (::kill(*it, SIGCONT) != 0 && errno != ESRCH)
      return Error::from_errno("Cannot continue process " + std::to_string(*it));
  }
  return ok();
}

void kill_source(pid_t root) {
  const auto list = processes_of(root);
  if (!list.has_value()) return;
  for (const pid_t pid : *list) ::kill(pid, SIGKILL);
}

Result<void> check_credentials(pid_t root, uid_t uid, gid_t gid) {
  CKPT_TRY(list, processes_of(root));
  for (const pid_t pid : list) {
    const Result<std::string> read = status_of(pid);
    if (!read && left_meanwhile(pid, root)) continue;
    CKPT_TRY(status, read);
    const std::vector<std::uint64_t> capabilities = status_numbers(status, "CapPrm", 16);
    const bool powerless = capabilities.size() == 1 && capabilities[0] == 0;
    if (!all_are(status_numbers(status, "Uid", 10), uid) ||
        !all_are(status_numbers(status, "Gid", 10), gid) || (uid != 0 && !powerless)) {
      return Error(ErrorCode::kRefused, "Process " + std::to_string(pid) +
                                            " does not have exactly the rights of user " +
                                            std::to_string(uid) + ", who owns the job");
    }
  }
  return ok();
}

Result<void> check_sessions(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) {
    if (::getsid(pid) == 0 || ::getpgid(pid) == 0)
      return Error(ErrorCode::kRefused, "The session of process " + std::to_string(pid) +
                                            " is led by a process outside this PID namespace. Start the job "
                                            "with setsid, or start it inside the container");
  }
  return ok();
}

Result<DumpEstimate> estimate_dump(pid_t root) {
  if (root <= 1 || ::kill(root, 0) != 0)
    return Error(ErrorCode::kNotFound, "Process " + std::to_string(root) + " has ended");
  DumpEstimate estimate;
  std::vector<pid_t> waiting{root};
  std::set<FileId> shared;
  for (std::size_t processes = 0; !waiting.empty();) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    std::vector<pid_t> children;
    append_children(pid, children);
    waiting.insert(waiting.end(), children.rbegin(), children.rend());
    if (processes + waiting.size() > kMaxProcesses)
      return Error(ErrorCode::kRefused,
                   "The job has more than " + std::to_string(kMaxProcesses) + " processes");
    const Result<std::uint64_t> read = memory_of(pid);
    if (!read && left_meanwhile(pid, root)) continue;
    CKPT_TRY(own, read);
    add_shared_memory(pid, shared);
    estimate.bytes += own;
    estimate.processes.push_back({pid, own, processes + shared.size()});
    if (own >= estimate.largest_bytes) {
      estimate.largest_bytes = own;
      estimate.largest_position = processes + shared.size();
    }
    ++processes;
  }
  return estimate;
}

std::uint64_t max_mappings() {
  const Result<std::string> text = read_file("/proc/sys/vm/max_map_count", 64);
  std::uint64_t limit = 0;
  if (text.has_value()) std::from_chars(text->data(), text->data() + text->size(), limit);
  return limit;
}

TreeSize size_of_tree(pid_t root) {
  TreeSize size;
  const auto list = processes_of(root);
  if (!list) return size;
  for (const pid_t pid : *list) {
    const Result<std::string> status = status_of(pid);
    if (!status) continue;
    const auto number = [&status](const char* name) {
      const auto numbers = status_numbers(*status, name, 10);
      return numbers.size() == 1 ? numbers[0] : 0;
    };
    ++size.processes;
    size.members.push_back(pid);
    size.threads += number("Threads");
    size.private_bytes += (number("RssAnon") + number("VmSwap")) << 10;
    size.shared_bytes += number("RssShmem") << 10;
    std::error_code gone;
    std::filesystem::directory_iterator file(proc_path(pid, "/fd"), gone);
    for (; !gone && file != std::filesystem::directory_iterator(); file.increment(gone)) ++size.descriptors;
    const std::uint64_t mappings = mappings_of(pid);
    size.mappings += mappings;
    size.most_mappings = std::max(size.most_mappings, mappings);
  }
  return size;
}

Result<std::uint64_t> dump_bytes(pid_t root) {
  CKPT_TRY(estimate, estimate_dump(root));
  return estimate.bytes;
}

std::chrono::milliseconds time_limit_of(pid_t root) {
  const Result<std::uint64_t> bytes = dump_bytes(root);
  return time_limit(bytes.has_value() ? *bytes : 0);
}

Result<void> check_memory_left(std::uint64_t bytes) {
  const std::uint64_t left = memory_left();
  if (bytes <= left) return ok();
  return Error(ErrorCode::kOutOfMemory, "This node has " + std::to_string(left >> 20) +
                                            " MiB of free memory, and the image of the process needs up to " +
                                            std::to_string(bytes >> 20) + " MiB");
}

}  // namespace ckpt::agent::host
