// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/proc_files.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace ckpt::agent::host {
namespace {

constexpr std::string_view kProcFolder = "/proc/";
constexpr std::string_view kGroups = "/sys/fs/cgroup/";
constexpr std::size_t kMaxDigits = 10;

struct ProcPath {
  pid_t pid = 0;     // process id in the path; 0 if the path names no process
  std::string rest;  // rest of the path, from the slash after the process id; may be empty
};

ProcPath parse_proc_path(const std::string& path) {
  if (!path.starts_with(kProcFolder)) return {};
  const std::size_t end = std::min(path.find('/', kProcFolder.size()), path.size());
  const std::string number = path.substr(kProcFolder.size(), end - kProcFolder.size());
  if (number.empty() || number.size() > kMaxDigits ||
      number.find_first_not_of("0123456789") != std::string::npos)
    return {};
  ProcPath parsed;
  parsed.pid = static_cast<pid_t>(std::atoll(number.c_str()));
  parsed.rest = path.substr(end);
  return parsed;
}

bool is_of_thread(const ProcPath& parsed) {
  return parsed.rest.starts_with("/task/");
}

// Returns the reason why a file of a control group does not move. The result is empty for a file in the root
// control group, because it describes the node, like /proc/meminfo.
std::string why_not_group(const std::string& path) {
  if (!path.starts_with(kGroups) || path.find('/', kGroups.size()) == std::string::npos) return {};
  return path +
         ", which describes a control group of this node: let the program close the file after reading it";
}

}  // namespace

bool names_process(const std::string& path) {
  return parse_proc_path(path).pid != 0;
}

std::string why_not_its_own(pid_t pid, const std::string& path) {
  if (std::string group = why_not_group(path); !group.empty()) return group;
  const ProcPath parsed = parse_proc_path(path);
  if (parsed.pid == 0 || (parsed.pid == pid && !is_of_thread(parsed))) return {};
  return path + ", which describes " +
         (parsed.pid == pid ? "one of the process's threads" : "process " + std::to_string(parsed.pid)) +
         " by its id on this node: let the program close the file after reading it";
}

std::string why_not_in_own_proc(const std::string& path) {
  if (std::string group = why_not_group(path); !group.empty()) return group;
  const ProcPath parsed = parse_proc_path(path);
  if (parsed.pid == 0 || !is_of_thread(parsed)) return {};
  return path + ", which describes a thread by its number: let the program close the file after reading it";
}

std::string by_self(const std::string& path, const std::set<pid_t>& tree) {
  const ProcPath parsed = parse_proc_path(path);
  if (!tree.contains(parsed.pid) || is_of_thread(parsed)) return path;
  // The "/." makes the path a folder. The program may have forbidden links when it opened the folder.
  return "/proc/self" + (parsed.rest.empty() ? "/." : parsed.rest);
}

}  // namespace ckpt::agent::host
