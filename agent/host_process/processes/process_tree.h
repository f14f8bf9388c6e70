// SPDX-License-Identifier: Apache-2.0
// A job's process and its descendants: listing, signalling, credentials. Threads: any. Errors: kNotFound
// if `root` is gone, kRefused for more than kMaxProcesses or foreign rights. A process id may be used again:
// the caller knows that `root` still lives (it is a keeper's child).
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

// Lists the tree: `root` first, parents before children.
Result<std::vector<pid_t>> processes_of(pid_t root);

// Returns `pid`, its parent, and so on; fewer if one of them ended meanwhile.
[[nodiscard]] std::vector<pid_t> line_of(pid_t pid);

// Returns field 22 of /proc/PID/stat, which with the PID identifies a process for ever. 0 if there is none.
[[nodiscard]] std::uint64_t start_ticks_of(pid_t pid);
[[nodiscard]] inline bool is_process(pid_t pid, std::uint64_t start_ticks) {
  return pid > 1 && start_ticks != 0 && start_ticks_of(pid) == start_ticks;
}

// Returns its real user id; that of nobody (65534) if it is gone.
[[nodiscard]] uid_t user_of(pid_t pid);

// True if it is gone, ending, or waits for its parent to take its status: it has no files then.
[[nodiscard]] bool has_ended(pid_t pid);

// True if it is stopped by a signal (SIGSTOP, SIGTSTP, ...), not by a tracer.
[[nodiscard]] bool is_stopped(pid_t pid);

// True if the signal does not end the process by itself: it has a handler for it, ignores it, or waits for
// it.
[[nodiscard]] bool withstands(pid_t pid, int signal);

// Continues all of them (SIGCONT) but `stopped`, which the program had stopped itself, by their ids in its
// own PID namespace (stopped_processes.h). Used for processes that CRIU left stopped at the source, too.
Result<void> resume_source(pid_t root, const std::set<pid_t>& stopped = {});

// Kills them at once, stopped or not; `root` first, which ends a whole PID namespace. Does nothing if there
// are none.
void kill_source(pid_t root);

// Checks that every process has exactly these user and group ids and, but for root, no capability. A restored
// process tree must pass this before it is continued, since CRIU gives processes the credentials that the
// image names.
Result<void> check_credentials(pid_t root, uid_t uid, gid_t gid);

// Refuses a process whose session or process group is led from outside our PID namespace: it cannot be
// dumped. The kernel reports such a leader as 0. kRefused names the process. Such processes were started in a
// container by a command from outside (docker exec, kubectl exec).
Result<void> check_sessions(const std::vector<pid_t>& processes);

struct DumpEstimate {
  struct Process {
    pid_t pid = 0;
    std::uint64_t bytes = 0;
    std::size_t position = 0;  // of its pages among CRIU's files of pages
  };
  std::vector<Process> processes;
  std::uint64_t bytes =
      0;  // of memory that a dump of the tree writes at most (private and shared pages that are not a file's)
  std::uint64_t largest_bytes = 0;  // the largest process's share
  // The position of that process's pages among CRIU's files of pages. Parents come before children, a child's
  // children before its sister. Memory that a process is the first to share comes before its own: a file for
  // each (CRIU 4.2.1).
  std::size_t largest_position = 0;
};
Result<DumpEstimate> estimate_dump(pid_t root);

// The sizes that a dump and a restore take longer for. Processes that end meanwhile are not counted.
struct TreeSize {
  std::uint64_t private_bytes = 0;
  std::uint64_t shared_bytes = 0;  // without memory of files
  std::uint64_t processes = 0;
  std::uint64_t threads = 0;
  std::uint64_t descriptors = 0;
  std::uint64_t mappings = 0;
  std::uint64_t most_mappings = 0;  // of one process
  std::vector<pid_t> members;
  // Returns the size without `bytes` of the shared memory, which is transferred apart.
  [[nodiscard]] std::uint64_t without_shared(std::uint64_t bytes) const {
    return private_bytes + (shared_bytes > bytes ? shared_bytes - bytes : 0);
  }
};
[[nodiscard]] TreeSize size_of_tree(pid_t root);
// How many mappings this node lets a process have (vm.max_map_count); 0: not known.
[[nodiscard]] std::uint64_t max_mappings();

// "/proc/PID" and `rest`, which begins with a slash.
[[nodiscard]] std::string proc_path(pid_t pid, const std::string& rest);

// Only the bytes.
Result<std::uint64_t> dump_bytes(pid_t root);

// The time limit of work on the whole tree (time_limit.h).
[[nodiscard]] std::chrono::milliseconds time_limit_of(pid_t root);

// kOutOfMemory where the node has less than that left for an image in memory.
Result<void> check_memory_left(std::uint64_t bytes);

}  // namespace ckpt::agent::host
