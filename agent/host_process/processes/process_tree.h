// SPDX-License-Identifier: Apache-2.0
// Lists, signals and checks a job's process and its descendants.
// Threads: any. Errors: kNotFound if `root` no longer exists. kRefused for more than kMaxProcesses or foreign
// rights. A process id may be reused, so the caller must know that `root` still exists (it is a keeper's
// child).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxProcesses = 4096;

// Returns the processes of the tree: `root` first, and parents before children.
Result<std::vector<pid_t>> processes_of(pid_t root);

// Returns `pid`, its parent, and further ancestors. The list is shorter if one of the processes exited in the
// meantime.
[[nodiscard]] std::vector<pid_t> line_of(pid_t pid);

// Returns field 22 of /proc/PID/stat. Together with the PID, the field identifies a process permanently. The
// result is 0 if the process does not exist.
[[nodiscard]] std::uint64_t start_ticks_of(pid_t pid);
[[nodiscard]] inline bool is_process(pid_t pid, std::uint64_t start_ticks) {
  return pid > 1 && start_ticks != 0 && start_ticks_of(pid) == start_ticks;
}

// Returns the real user id of the process, or 65534 (nobody) if the process no longer exists.
[[nodiscard]] uid_t user_of(pid_t pid);

// Checks whether the process no longer exists, is exiting, or waits for its parent to reap it. The process
// has no files in these cases.
[[nodiscard]] bool has_ended(pid_t pid);

// Checks whether a signal (SIGSTOP, SIGTSTP, ...), and not a tracer, has stopped the process.
[[nodiscard]] bool is_stopped(pid_t pid);

// Checks whether the process survives the signal: it has a handler for the signal, ignores the signal, or
// blocks it to wait for it.
[[nodiscard]] bool withstands(pid_t pid, int signal);

// Continues all processes of the tree (SIGCONT) except `stopped`. The program had stopped these processes
// itself, and `stopped` contains their ids in their own PID namespace (stopped_processes.h). The function is
// also used for processes that CRIU left stopped at the source.
Result<void> resume_source(pid_t root, const std::set<pid_t>& stopped = {});

// Kills all processes of the tree at once, whether stopped or not. `root` is killed first, because the exit
// of an init also terminates its whole PID namespace. The function does nothing if there is no process.
void kill_source(pid_t root);

// Checks that every process has exactly these user and group ids and, except for root, no capability. A
// restored process tree must pass this check before it is continued, because CRIU gives processes the
// credentials in the image.
Result<void> check_credentials(pid_t root, uid_t uid, gid_t gid);

// Refuses a process whose session or process group has a leader outside our PID namespace, because CRIU
// cannot dump it. The kernel reports such a leader as 0. kRefused names the process. Such processes were
// started in a container by a command from outside (docker exec, kubectl exec).
Result<void> check_sessions(const std::vector<pid_t>& processes);

struct DumpEstimate {
  struct Process {
    pid_t pid = 0;
    std::uint64_t bytes = 0;
    std::size_t position = 0;  // position of the process's pages among CRIU's files of pages
  };
  std::vector<Process> processes;
  std::uint64_t bytes =
      0;  // maximum bytes of memory that a dump of the tree writes (private and shared pages that do not
          // belong to a file)
  std::uint64_t largest_bytes = 0;  // bytes of the largest process
  // The position of the largest process's pages among CRIU's files of pages. Parents come before children. A
  // child's children come before its sister. Shared memory comes before the pages of the first process that
  // shares it, and has a separate file (CRIU 4.2.1).
  std::size_t largest_position = 0;
};
Result<DumpEstimate> estimate_dump(pid_t root);

// The sizes that determine how long a dump and a restore take. Processes that exit in the meantime are not
// counted.
struct TreeSize {
  std::uint64_t private_bytes = 0;
  std::uint64_t shared_bytes = 0;  // shared memory, without the memory of files
  std::uint64_t processes = 0;
  std::uint64_t threads = 0;
  std::uint64_t descriptors = 0;
  std::uint64_t mappings = 0;
  std::uint64_t most_mappings = 0;  // largest number of mappings that one process has
  std::vector<pid_t> members;
  // Returns the private and the shared memory in bytes, without `bytes` of the shared memory. Those bytes are
  // transferred separately.
  [[nodiscard]] std::uint64_t without_shared(std::uint64_t bytes) const {
    return private_bytes + (shared_bytes > bytes ? shared_bytes - bytes : 0);
  }
};
[[nodiscard]] TreeSize size_of_tree(pid_t root);
// Returns the number of mappings that this node allows a process (vm.max_map_count). 0 means that the number
// is unknown.
[[nodiscard]] std::uint64_t max_mappings();

// Returns "/proc/PID" followed by `rest`, which begins with a slash.
[[nodiscard]] std::string proc_path(pid_t pid, const std::string& rest);

// Returns the estimated maximum number of bytes that a dump of the tree writes (DumpEstimate::bytes).
Result<std::uint64_t> dump_bytes(pid_t root);

// Returns the time limit for work on the whole tree (time_limit.h).
[[nodiscard]] std::chrono::milliseconds time_limit_of(pid_t root);

// Checks that the node has at least `bytes` of free memory for an image. The error is kOutOfMemory if it has
// less.
Result<void> check_memory_left(std::uint64_t bytes);

}  // namespace ckpt::agent::host
