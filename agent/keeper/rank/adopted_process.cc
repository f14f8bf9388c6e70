// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/adopted_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string>

#include "agent/keeper/rank/rank_process.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxProcText = 1u << 20;
constexpr std::size_t kMaxProcesses = 4096;

std::string proc(pid_t pid, const std::string& rest) {
  return "/proc/" + std::to_string(pid) + rest;
}

// T: stopped, t: traced, Z and X: ended.
bool thread_is_stopped(const std::string& stat_path) {
  const Result<std::string> stat = read_file(stat_path, 4096);
  if (!stat.has_value()) return true;
  const std::size_t name_end = stat.assume_value().rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.assume_value().size()) return true;
  return std::string("TtZX").find(stat.assume_value()[name_end + 2]) != std::string::npos;
}

}  // namespace

Result<UniqueFd> open_process(pid_t pid, std::uint64_t start_ticks) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process && errno != ESRCH) return Error::from_errno("Watching process " + std::to_string(pid));
  // After it was opened: the number cannot go to another any more without the descriptor telling the end.
  if (process && start_ticks_of(pid) == start_ticks) return process;
  return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid) + " has ended");
}

std::vector<pid_t> tree_of(pid_t root) {
  std::vector<pid_t> list;
  if (root > 1 && (::kill(root, 0) == 0 || errno == EPERM)) list.push_back(root);
  for (std::size_t next = 0; next < list.size() && list.size() < kMaxProcesses; ++next) {
    std::error_code gone;
    for (const auto& thread : std::filesystem::directory_iterator(proc(list[next], "/task"), gone)) {
      const Result<std::string> children = read_file((thread.path() / "children").string(), kMaxProcText);
      if (!children.has_value()) continue;
      std::istringstream text(children.assume_value());
      for (pid_t child = 0; text >> child;) list.push_back(child);
    }
  }
  return list;
}

void signal_tree(pid_t root, int signal) {
  // What is stopped forks no more, so the second list is whole.
  if (signal == SIGKILL) {
    for (const pid_t pid : tree_of(root)) ::kill(pid, SIGSTOP);
  }
  for (const pid_t pid : tree_of(root)) ::kill(pid, signal);
}

bool is_stopped(pid_t root) {
  const std::vector<pid_t> tree = tree_of(root);
  return std::all_of(tree.begin(), tree.end(), [](pid_t pid) {
    std::error_code gone;
    bool stopped = true;
    for (const auto& thread : std::filesystem::directory_iterator(proc(pid, "/task"), gone))
      stopped = stopped && thread_is_stopped((thread.path() / "stat").string());
    return stopped;
  });
}

}  // namespace ckpt::keeper
