// SPDX-License-Identifier: Apache-2.0
// HOME/local.json: what `local up` started, so that the next `up`, `status` and `down` find it.
// Threads: one; `LocalLock` keeps two commands on one home apart. Errors: kIo; a damaged file counts as
// kCorrupt.
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
  int gpus = 1;  // of each node
  std::string gpu_memory;
  std::string api_address;  // kept, so that a coordinator that is started again is found where it was
  std::string agent_address;
  ProcessId coordinator;
  std::vector<LocalNode> nodes;
};

Result<std::optional<LocalState>> load_local(const std::string& home);
Result<void> save_local(const std::string& home, const LocalState& state);

class LocalLock {
 public:
  // Nothing while another command on this home has it.
  static Result<std::optional<LocalLock>> try_take(const std::string& home);

 private:
  explicit LocalLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Marks every process of this home's cluster.
std::string cluster_marker(const std::string& home);

}  // namespace ckpt::cli
