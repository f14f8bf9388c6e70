// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/name_owner.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {
namespace {

constexpr std::int64_t kMsPerSecond = 1000;

std::int64_t clock_ms(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return time.tv_sec * kMsPerSecond + time.tv_nsec / 1'000'000;
}

// Returns the start time of a process in milliseconds of Unix time. The kernel reports the start in ticks
// since the machine's boot.
std::int64_t start_unix_ms(pid_t pid) {
  const auto ticks = static_cast<std::int64_t>(start_ticks_of(pid));
  return clock_ms(CLOCK_REALTIME) - clock_ms(CLOCK_BOOTTIME) + ticks * kMsPerSecond / ::sysconf(_SC_CLK_TCK);
}

}  // namespace

NameOwner name_owner(pid_t root, const NameRules& rules) {
  NameOwner owner;
  owner.job = rules.job;
  owner.root = root;
  if (const auto tree = processes_of(root); tree.has_value()) owner.tree.insert(tree->begin(), tree->end());
  owner.uid = user_of(root);
  if (rules.started_unix_ms > 0) owner.since_unix_ms = std::min(start_unix_ms(root), rules.started_unix_ms);
  owner.is_alone = rules.is_alone;
  return owner;
}

bool has_own_pid_namespace(pid_t root) {
  std::error_code gone;
  const auto own = std::filesystem::read_symlink("/proc/self/ns/pid", gone);
  const auto its = std::filesystem::read_symlink(proc_path(root, "/ns/pid"), gone);
  return !gone && own != its;
}

}  // namespace ckpt::agent::host
