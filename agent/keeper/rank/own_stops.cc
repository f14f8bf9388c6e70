// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/own_stops.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "agent/keeper/rank/adopted_process.h"
#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxStatusText = 1u << 16;

std::string status_text_of(pid_t pid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status", kMaxStatusText);
  return status.has_value() ? status.assume_value() : std::string();
}

// Stopped by a signal; not by a tracer.
bool is_in_stop(pid_t pid) {
  return status_text_of(pid).find("\nState:\tT (stopped)") != std::string::npos;
}

// The last of "NSpid:	4711	3".
pid_t innermost_id_of(pid_t pid) {
  const std::string status = status_text_of(pid);
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return pid;
  const std::string line = status.substr(at + 1, status.find('\n', at + 1) - at - 1);
  return static_cast<pid_t>(std::atoi(line.c_str() + line.find_last_of("\t ") + 1));
}

}  // namespace

// Where the first process is stopped, so is the whole job, and what was noted before counts.
void OwnStops::note(const RankProcess& process) {
  if (is_in_stop(process.pid())) return;
  stopped_.clear();
  for (const pid_t pid : tree_of(process.pid())) {
    if (is_in_stop(pid)) stopped_.insert(pid);
  }
}

void OwnStops::note_restored(pid_t root, const std::vector<pid_t>& in_namespace) {
  stopped_.clear();
  if (in_namespace.empty()) return;
  for (const pid_t pid : tree_of(root)) {
    if (std::find(in_namespace.begin(), in_namespace.end(), innermost_id_of(pid)) != in_namespace.end())
      stopped_.insert(pid);
  }
}

void OwnStops::go_on(const RankProcess& process) {
  if (stopped_.empty()) return process.signal_group(SIGCONT);
  for (const pid_t pid : process.members()) {
    if (!stopped_.contains(pid)) ::kill(pid, SIGCONT);
  }
  go_on_tree(process.pid());
}

void OwnStops::go_on_tree(pid_t root) {
  const std::vector<pid_t> tree = tree_of(root);
  for (auto pid = tree.rbegin(); pid != tree.rend(); ++pid) {
    if (!stopped_.contains(*pid)) ::kill(*pid, SIGCONT);
  }
  stopped_.clear();
}

}  // namespace ckpt::keeper
