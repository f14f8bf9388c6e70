// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/process_state.h"

#include <linux/kcmp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxStateText = 1u << 16;
constexpr std::size_t kSpareDescriptors = 4;  // number of free descriptors that CRIU needs in the process
// The number of descriptors that CRIU opens for itself in the process. They are above the process's highest
// descriptor and below CRIU's own limit, rounded down to a multiple of 128.
constexpr std::uint64_t kCriuDescriptors = 64;
constexpr std::uint64_t kDescriptorStep = 128;
constexpr int kResetOnFork = 0x40000000;
constexpr unsigned kResources = 24;  // number of the capability CAP_SYS_RESOURCE, which permits higher limits

std::string link_at(const std::string& path) {
  std::error_code gone;
  return std::filesystem::read_symlink(path, gone).string();
}

// Returns the words after "NAME:" in a status file.
std::vector<std::string> state_words(const std::string& status, const std::string& name) {
  std::vector<std::string> words;
  const std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return words;
  const std::size_t begin = at + name.size() + 2;
  std::istringstream text(status.substr(begin, status.find('\n', begin) - begin));
  for (std::string word; text >> word;) words.push_back(std::move(word));
  return words;
}

long state_number(const std::string& status, const std::string& name) {
  const auto words = state_words(status, name);
  return words.empty() ? 0 : std::strtol(words.front().c_str(), nullptr, 10);
}

std::string state_text(const std::string& folder) {
  const Result<std::string> status = read_file(folder + "/status", kMaxStateText);
  return status.has_value() ? *status : std::string();
}

std::vector<pid_t> threads_in(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/task"), gone))
    threads.push_back(std::atoi(item.path().filename().c_str()));
  return threads;
}

bool shares_with(pid_t one, pid_t other, int what) {
  return ::syscall(SYS_kcmp, one, other, what, 0UL, 0UL) == 0;
}
bool differs_from(pid_t one, pid_t other, int what) {
  return ::syscall(SYS_kcmp, one, other, what, 0UL, 0UL) > 0;
}

class ProcessInspection {
 public:
  ProcessInspection(pid_t pid, pid_t root, const Tracers& own, bool has_own_namespaces)
      : pid_(pid),
        root_(root),
        own_(own),
        has_own_namespaces_(has_own_namespaces),
        status_(state_text(proc_path(pid, ""))) {}

  std::vector<std::string> collect() {
    if (status_.empty()) return {};
    check_namespaces();
    check_user();
    check_filter();
    check_leader();
    check_parent();
    check_threads();
    check_descriptors();
    return std::move(found_);
  }

 private:
  void add(const std::string& what) { found_.push_back(name_of_process(pid_) + " " + what); }
  void check_namespaces();
  void check_user();
  void check_filter();
  void check_leader();
  void check_parent();
  void check_threads();
  bool check_thread(pid_t thread);
  void check_tracer(const std::string& status);
  void check_schedule(pid_t thread);
  void check_descriptors();

  const pid_t pid_;
  const pid_t root_;
  const Tracers& own_;
  const bool has_own_namespaces_;
  const std::string status_;
  bool is_traced_ = false;
  bool is_scheduled_ = false;
  std::vector<std::string> found_;
};

// Checks that the process is in the namespaces of the node and of the job's first process, as far as it must
// share them. CRIU reports "Can't dump nested user namespace".
void ProcessInspection::check_namespaces() {
  const std::string folder = proc_path(pid_, "/ns/");
  std::vector<const char*> of_node = {"net"};
  std::vector<const char*> of_job = {"user", "pid", "uts", "cgroup", "time"};
  auto& others = has_own_namespaces_ ? of_job : of_node;
  others.insert(others.end(), {"mnt", "ipc"});
  for (const char* space : of_node) {
    if (link_at(folder + space) != link_at(std::string("/proc/self/ns/") + space))
      add(std::string("is in a container (another ") + space +
          " namespace): start the process outside the container");
  }
  const std::string first = proc_path(root_, "/ns/");
  for (const char* space : of_job) {
    if (link_at(folder + space) != link_at(first + space))
      add(std::string("is in another ") + space + " namespace than the job: start it without unshare");
  }
  for (const char* space : {"pid", "time"}) {
    const std::string own = link_at(folder + space);
    if (!own.empty() && link_at(folder + space + "_for_children") != own)
      add(std::string("starts its children in another ") + space +
          " namespace than the job's: start it without unshare");
  }
}

// Checks that the process has only the user and group ids of the job's first process. No process at the
// target may have other rights than the job's user.
void ProcessInspection::check_user() {
  const std::string first = pid_ == root_ ? status_ : state_text(proc_path(root_, ""));
  for (const char* name : {"Uid", "Gid"}) {
    const auto wanted = state_words(first, name);
    const auto ids = state_words(status_, name);
    if (wanted.empty() || ids.empty()) continue;
    const auto other =
        std::find_if(ids.begin(), ids.end(), [&](const std::string& id) { return id != wanted.front(); });
    if (other == ids.end()) continue;
    add(std::string("runs with ") + (name[0] == 'U' ? "user id " : "group id ") + *other +
        ", while the job runs with " + wanted.front() +
        ": only processes of the job's own user can be restored");
  }
}

// Checks that the process and this agent do not both run under a system call filter. The kernel does not let
// a filtered process suspend the filter of another process: "suspending seccomp failed: EPERM".
void ProcessInspection::check_filter() {
  if (state_number(status_, "Seccomp") == 0 || state_number(state_text("/proc/self"), "Seccomp") == 0) return;
  add("runs under a system call filter (seccomp), as this agent does, so CRIU cannot save the process: start "
      "the agent without a filter (seccomp=unconfined)");
}

// Checks that the first thread has not exited before the other threads. CRIU reports "Zombies with threads
// are not supported".
void ProcessInspection::check_leader() {
  const auto state = state_words(status_, "State");
  if (!state.empty() && state.front() == "Z" && state_number(status_, "Threads") > 1)
    add("has ended its main thread while other threads continue to run, which CRIU cannot save: let the main "
        "thread wait for the other threads");
}

// Checks that the process shares neither its memory nor its working directory with its parent. CRIU reports
// "Can't make VM id" or "Can't make FS id".
void ProcessInspection::check_parent() {
  const auto parent = static_cast<pid_t>(state_number(status_, "PPid"));
  if (pid_ == root_ || parent <= 1) return;
  if (shares_with(pid_, parent, KCMP_VM))
    add("shares its memory with its parent " + std::to_string(parent) +
        " (clone with CLONE_VM), which CRIU cannot save: try again after the process has called exec");
  else if (shares_with(pid_, parent, KCMP_FS))
    add("shares its working directory with its parent " + std::to_string(parent) +
        " (clone with CLONE_FS), which CRIU cannot save");
}

void ProcessInspection::check_threads() {
  for (const pid_t thread : threads_in(pid_)) {
    if (check_thread(thread)) return;
  }
}

// Checks a thread's tracer and scheduling policy, and checks that it has the first thread's namespaces,
// descriptors and working directory. CRIU gives a restored thread those of the first thread. Returns true
// after such a difference, because one text for all threads suffices.
bool ProcessInspection::check_thread(pid_t thread) {
  const std::string folder = proc_path(pid_, "/task/") + std::to_string(thread);
  check_tracer(thread == pid_ ? status_ : state_text(folder));
  check_schedule(thread);
  if (thread == pid_) return false;
  const std::string text = "has thread " + std::to_string(thread) + " with ";
  for (const char* space : {"mnt", "net", "ipc", "uts", "cgroup", "user", "pid_for_children"}) {
    const std::string other = link_at(folder + "/ns/" + space);
    if (other.empty() || other == link_at(proc_path(pid_, "/ns/") + space)) continue;
    add(text + "another " + space + " namespace than its first thread: start it without unshare");
    return true;
  }
  const bool files = differs_from(thread, pid_, KCMP_FILES);
  if (files || differs_from(thread, pid_, KCMP_FS)) {
    add(text + (files ? "descriptors" : "a working directory") +
        " of its own (unshare), which would be lost");
    return true;
  }
  return false;
}

// Checks that the thread has no tracer that stays attached during the dump. CRIU reports "Unseizable
// non-zombie".
void ProcessInspection::check_tracer(const std::string& status) {
  const auto tracer = static_cast<pid_t>(state_number(status, "TracerPid"));
  if (tracer == 0 || is_traced_ || own_.contains(tracer)) return;
  is_traced_ = true;
  add("is traced by " + name_of_process(tracer) + ": detach the tracer first");
}

// Checks that CRIU can restore the thread's scheduling policy. CRIU reports "Inconsistent sched params" at
// the restore.
void ProcessInspection::check_schedule(pid_t thread) {
  static constexpr std::array<int, 5> kKnown = {SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE};
  const int policy = ::sched_getscheduler(thread);
  if (policy < 0 || is_scheduled_) return;
  if (std::find(kKnown.begin(), kKnown.end(), policy & ~kResetOnFork) != kKnown.end()) return;
  is_scheduled_ = true;
  add("has scheduling policy " + std::to_string(policy & ~kResetOnFork) +
      (policy == 6 ? " (SCHED_DEADLINE)" : "") + ", which CRIU cannot restore: use chrt to change it");
}

// Returns the number of descriptors that this agent's CRIU may have.
std::uint64_t limit_of_criu() {
  rlimit own{};
  if (::getrlimit(RLIMIT_NOFILE, &own) != 0) return 0;
  const auto words = state_words(state_text("/proc/self"), "CapEff");
  const bool may_raise =
      !words.empty() && (std::strtoull(words.front().c_str(), nullptr, 16) >> kResources & 1) != 0;
  if (!may_raise) return own.rlim_max;
  const Result<std::string> max_descriptors = read_file("/proc/sys/fs/nr_open", 64);
  return max_descriptors.has_value() ? std::strtoull(max_descriptors->c_str(), nullptr, 10) : own.rlim_max;
}

// Checks that the process has free descriptors for CRIU, and that its highest descriptor leaves space below
// CRIU's own limit. CRIU reports "Can't create memfd in victim", or "Can't chose service_fd_base" at the
// restore.
void ProcessInspection::check_descriptors() {
  std::uint64_t count = 0;
  std::uint64_t highest = 0;
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(proc_path(pid_, "/fd"), gone)) {
    ++count;
    highest = std::max<std::uint64_t>(highest, std::strtoull(item.path().filename().c_str(), nullptr, 10));
  }
  rlimit limit{};
  if (::prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit) == 0 && count + kSpareDescriptors > limit.rlim_cur)
    add("has " + std::to_string(count) + " of at most " + std::to_string(limit.rlim_cur) +
        " descriptors open, and CRIU needs " + std::to_string(kSpareDescriptors) +
        " more in this process: close some descriptors, or raise the process's limit (prlimit --pid " +
        std::to_string(pid_) + " --nofile)");
  const std::uint64_t max_descriptors = limit_of_criu() / kDescriptorStep * kDescriptorStep;
  if (count > 0 && highest + kCriuDescriptors > max_descriptors)
    add("has descriptor " + std::to_string(highest) + ", too close to this agent's limit of " +
        std::to_string(max_descriptors) + " for CRIU: raise the agent's limit (LimitNOFILE)");
}

}  // namespace

std::string name_of_process(pid_t pid) {
  const Result<std::string> name = read_file(proc_path(pid, "/comm"), 64);
  const std::string text = name.has_value() ? *name : "";
  return "process " + std::to_string(pid) +
         (text.empty() ? "" : " (" + text.substr(0, text.find('\n')) + ")");
}

std::vector<std::string> obstacles_of_process(pid_t pid, pid_t root, const Tracers& own,
                                              bool has_own_namespaces) {
  return ProcessInspection(pid, root, own, has_own_namespaces).collect();
}

}  // namespace ckpt::agent::host
