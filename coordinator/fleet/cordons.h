// SPDX-License-Identifier: Apache-2.0
// Nodes and GPUs that get no new job, by owner: the operator or the health policy. Durable before a call
// returns.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: those of the store; then
// nothing has changed.
#pragma once

#include <string>
#include <vector>

#include "coordinator/fleet/scope.h"
#include "coordinator/state/event_log.h"

namespace ckpt::coordinator {

enum class CordonOwner : std::uint8_t { kOperator = 1, kHealth = 2 };
[[nodiscard]] std::string_view to_string(CordonOwner owner) noexcept;

struct Cordon {
  Scope scope;
  CordonOwner owner = CordonOwner::kOperator;
  std::string reason;
  std::int64_t since_ms = 0;
};
// "cordoned by operator: new driver".
[[nodiscard]] std::string to_text(const Cordon& cordon);

class CordonTable {
 public:
  CordonTable(Store& store, EventLog& events, control::asio::any_io_executor executor)
      : store_(store), events_(events), changed_(std::move(executor)) {}

  Result<void> load();

  // One per scope and owner. Asked for again it keeps its time, and its reason unless a new one is given.
  Result<void> set(const Scope& scope, CordonOwner owner, std::string reason);
  // Removes those of exactly this scope, of any owner, and returns them: a GPU's cordon outlives its
  // node's.
  Result<std::vector<Cordon>> clear(const Scope& scope);

  [[nodiscard]] const std::vector<Cordon>& all() const { return cordons_; }
  [[nodiscard]] const Cordon* find(const Scope& scope, CordonOwner owner) const;
  // The node's and its GPUs'.
  [[nodiscard]] std::vector<Cordon> of_node(const std::string& node) const;
  // All that keep new jobs from the GPU.
  [[nodiscard]] std::vector<Cordon> over(const Place& place) const;
  // Empty, or why no new job may come.
  [[nodiscard]] std::string why_closed(const Place& place) const;
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  Store& store_;
  EventLog& events_;
  Signal changed_;
  std::vector<Cordon> cordons_;
};

}  // namespace ckpt::coordinator
