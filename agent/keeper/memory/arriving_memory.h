// SPDX-License-Identifier: Apache-2.0
// Knows whether the host memory of a restored program is whole. The program may run before that
// (init/lazy_pages.h), but must not be dumped: the image would lack the missing memory.
// Threads: one. Ownership: the trace of what brings it. Errors: a program whose memory cannot be brought is
// killed. Requests that wait for the memory, then or later, are refused with the reason.
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
  [[nodiscard]] bool is_whole() const { return !pages_.has_value() && why_never_.empty(); }
  // Returns why the program was killed; empty: it was not.
  [[nodiscard]] const std::string& loss() const { return loss_; }

  // Answers with Done once the memory is whole. Refuses if it never will be: it was lost, or the program
  // ended before.
  void await(std::uint64_t request);
  void refuse_dump(std::uint64_t request);

  void on_child_changed(pid_t child, int status);  // of waitpid
  void on_agent_gone() { waiting_.clear(); }
  void on_rank_exited();

 private:
  void end_wait();

  const RankProcess& process_;
  AgentPort& agent_;
  std::optional<LazyPages> pages_;
  std::string loss_;
  std::string why_never_;               // it is not whole and never will be; empty: it is or may be
  std::vector<std::uint64_t> waiting_;  // the requests of await()
};

}  // namespace ckpt::keeper
