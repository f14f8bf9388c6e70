// SPDX-License-Identifier: Apache-2.0
// Tracks whether the host memory of a restored program is complete. The program may run before that
// (init/lazy_pages.h). It must not be dumped, because the image would lack the missing memory.
// Threads: one. Ownership: the trace of the process that provides the memory. Errors: a program whose memory
// cannot be provided is killed. Present and later requests that wait for the memory are refused with the
// reason.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/keeper/init/lazy_pages.h"
#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/rank/rank_process.h"

namespace ckpt::keeper {

class ArrivingMemory {
 public:
  ArrivingMemory(const RankProcess& process, AgentPort& agent) : process_(process), agent_(agent) {}

  void begin(std::optional<LazyPages> pages);
  [[nodiscard]] bool is_whole() const { return !pages_.has_value() && never_reason_.empty(); }
  // Returns the reason why the program was killed. An empty string means that it was not killed.
  [[nodiscard]] const std::string& loss() const { return loss_; }

  // Answers with Done when the memory is complete. The request is refused if the memory was lost or the
  // program exited before.
  void await(std::uint64_t request);
  void refuse_dump(std::uint64_t request);

  void on_child_changed(pid_t child, int status);  // handles `status`, which waitpid reported for `child`
  void on_agent_gone() { waiting_.clear(); }
  void on_rank_exited();

 private:
  void end_wait();

  const RankProcess& process_;
  AgentPort& agent_;
  std::optional<LazyPages> pages_;
  std::string loss_;
  std::string never_reason_;            // the reason why the memory will never be complete; empty if it is or
                                        // may become complete
  std::vector<std::uint64_t> waiting_;  // request numbers of await() that are not answered yet
};

}  // namespace ckpt::keeper
