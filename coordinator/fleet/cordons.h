// SPDX-License-Identifier: Apache-2.0
// Cordons of nodes and GPUs, which keep new jobs away. A cordon's owner is the operator or the health policy.
// Changes are durable before a call returns.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: those of the store; nothing
// has changed then.
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
// Returns the cordon as text: "cordoned by operator: new driver".
[[nodiscard]] std::string to_text(const Cordon& cordon);

class CordonTable {
 public:
  CordonTable(Store& store, EventLog& events, control::asio::any_io_executor executor)
      : store_(store), events_(events), changed_(std::move(executor)) {}

  Result<void> load();

  // Sets a cordon, one per scope and owner. A repeated call keeps the cordon's time, and its reason unless a
  // new reason is passed.
  Result<void> set(const Scope& scope, CordonOwner owner, std::string reason);
  // Removes the cordons of exactly this scope, of any owner, and returns them. A GPU's cordon therefore
  // outlives its node's cordon.
  Result<std::vector<Cordon>> clear(const Scope& scope);

  [[nodiscard]] const std::vector<Cordon>& all() const { return cordons_; }
  [[nodiscard]] const Cordon* find(const Scope& scope, CordonOwner owner) const;
  // Returns the cordons of the node and of its GPUs.
  [[nodiscard]] std::vector<Cordon> of_node(const std::string& node) const;
  // Returns all cordons that keep new jobs from the GPU.
  [[nodiscard]] std::vector<Cordon> over(const Place& place) const;
  // Returns why the place accepts no new job, or an empty string if it accepts one.
  [[nodiscard]] std::string why_closed(const Place& place) const;
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  Store& store_;
  EventLog& events_;
  Signal changed_;
  std::vector<Cordon> cordons_;
};

}  // namespace ckpt::coordinator
