// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/descent.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxProcText = 1u << 20;
constexpr std::size_t kMaxStat = 4096;
constexpr std::size_t kMaxProcesses = 1u << 16;
constexpr int kMaxLooks = 16;

std::string proc(pid_t pid, std::string_view rest) {
  return "/proc/" + std::to_string(pid) + std::string(rest);
}

// Returns the fields of a stat file from the third field (the state) on. The name before these fields may
// contain any characters. An empty string means that the process no longer exists.
std::string fields_after_name(const std::string& path) {
  const Result<std::string> stat = read_file(path, kMaxStat);
  if (!stat.has_value()) return {};
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return {};
  return stat->substr(name_end + 2);
}

// Returns the parent of a process, or 0 if the process no longer exists.
pid_t parent_of(pid_t pid) {
  const std::string fields = fields_after_name(proc(pid, "/stat"));
  return fields.size() < 2 ? 0 : static_cast<pid_t>(std::strtol(fields.c_str() + 1, nullptr, 10));
}

std::vector<pid_t> ancestors_now(pid_t pid) {
  std::vector<pid_t> line{pid};
  while (line.back() > 1 && line.size() < kMaxProcesses) {
    const pid_t parent = parent_of(line.back());
    if (parent <= 0) break;
    line.push_back(parent);
  }
  return line;
}

// Checks whether a line of ancestors is still valid. A parent with the same number is still the same process.
// If a parent exits, its children get another parent. That parent is older than the process that next gets
// the number.
bool is_still(const std::vector<pid_t>& line) {
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    if (parent_of(line[i]) != line[i + 1]) return false;
  }
  return true;
}

bool thread_stands_still(const std::string& stat_path) {
  const std::string fields = fields_after_name(stat_path);
  return fields.empty() || std::string_view("TtZXD").find(fields[0]) != std::string_view::npos;
}

// Returns the numbers of one process, from this process's PID namespace down to the process's own.
std::vector<pid_t> numbers_of(const std::string& status_path) {
  constexpr std::string_view kField = "\nNSpid:";
  std::vector<pid_t> numbers;
  const Result<std::string> status = read_file(status_path, kMaxProcText);
  const std::size_t at = status.has_value() ? status->find(kField) : std::string::npos;
  if (at == std::string::npos) return numbers;
  const std::size_t begin = at + kField.size();
  std::istringstream text(status->substr(begin, status->find('\n', begin) - begin));
  for (pid_t number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

std::uint64_t start_ticks_of(pid_t pid) {
  constexpr int kField = 22;
  std::istringstream fields(fields_after_name(proc(pid, "/stat")));
  std::string field;
  for (int number = 3; number < kField; ++number) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

std::vector<pid_t> line_of(pid_t pid) {
  for (int look = 0; look < kMaxLooks; ++look) {
    std::vector<pid_t> line = ancestors_now(pid);
    if (line.size() < 2) return {};
    if (is_still(line)) return line;
  }
  return {};
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> list;
  std::error_code gone;
  std::filesystem::directory_iterator thread(proc(pid, "/task"), gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    const Result<std::string> children = read_file((thread->path() / "children").string(), kMaxProcText);
    if (!children.has_value()) continue;
    std::istringstream text(*children);
    for (pid_t child = 0; text >> child;) list.push_back(child);
  }
  return list;
}

std::vector<pid_t> tree_of(std::vector<pid_t> roots) {
  std::vector<pid_t> list;
  std::set<pid_t> known;
  const auto add = [&](pid_t pid) {
    if (known.insert(pid).second) list.push_back(pid);
  };
  for (const pid_t root : roots) {
    if (root > 1 && (::kill(root, 0) == 0 || errno == EPERM)) add(root);
  }
  for (std::size_t next = 0; next < list.size() && list.size() < kMaxProcesses; ++next) {
    for (const pid_t child : children_of(list[next])) add(child);
  }
  return list;
}

bool stands_still(pid_t pid) {
  std::error_code gone;
  std::filesystem::directory_iterator thread(proc(pid, "/task"), gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    if (!thread_stands_still((thread->path() / "stat").string())) return false;
  }
  return true;
}

bool stand_still(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), stands_still);
}

bool is_stopped(pid_t pid) {
  return fields_after_name(proc(pid, "/stat")).starts_with('T');
}

bool is_namespace_init(pid_t pid) {
  const std::vector<pid_t> numbers = numbers_of(proc(pid, "/status"));
  return numbers.size() > numbers_of("/proc/self/status").size() && numbers.back() == 1;
}

}  // namespace ckpt::keeper
