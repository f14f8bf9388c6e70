// SPDX-License-Identifier: Apache-2.0
// HOME/local.json lists the processes that `local up` has started, for the next `up`, `status` and `down`.
// Threads: one; `LocalLock` serializes commands on one home. Errors: kIo; kCorrupt for a damaged file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::cli {

struct LocalNode {
  std::string name;
  ProcessId process;
};

struct LocalState {
  bool software = false;
  int gpus = 1;  // GPUs of each node
  std::string gpu_memory;
  std::string api_address;  // stored so that a restarted coordinator listens at the same address
  std::string agent_address;
  ProcessId coordinator;
  std::vector<LocalNode> nodes;
};

Result<std::optional<LocalState>> load_local(const std::string& home);
Result<void> save_local(const std::string& home, const LocalState& state);

class LocalLock {
 public:
  // Acquires the lock. Returns nullopt while another command on this home has the lock.
  static Result<std::optional<LocalLock>> try_acquire(const std::string& home);

 private:
  explicit LocalLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Returns the environment variable that marks every process of this home's cluster.
std::string cluster_marker(const std::string& home);

}  // namespace ckpt::cli
