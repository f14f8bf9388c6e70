// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/dump_end.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "agent/keeper/rank/descent.h"
#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxStatus = 64 << 10;

// Returns the tracer of a process, or 0 if there is none.
pid_t tracer_of(pid_t pid) {
  const Result<std::string> status = read_file("/proc/" + std::to_string(pid) + "/status", kMaxStatus);
  if (!status.has_value()) return 0;
  const std::string field = "\nTracerPid:\t";
  const std::size_t at = status->find(field);
  return at == std::string::npos ? 0 : std::atoi(status->c_str() + at + field.size());
}

}  // namespace

void kill_tracers_of(pid_t root) {
  std::set<pid_t> tracers;
  for (const pid_t pid : tree_of(root)) tracers.insert(tracer_of(pid));
  tracers.erase(0);
  tracers.erase(::getpid());
  for (const pid_t tracer : tracers) ::kill(tracer, SIGKILL);
}

}  // namespace ckpt::keeper
