// SPDX-License-Identifier: Apache-2.0
// The setting whether automatic moves are enabled. The operator and the circuit breaker change it. Moves can
// be off for single nodes, or for the whole cluster. Changes are durable before a call returns.
// Threads: one io_context on one thread. Errors: those of the store; nothing has changed then.
#pragma once

#include <map>
#include <string>

#include "coordinator/state/event_log.h"
#include "libckpt/record/fields.h"

namespace ckpt::coordinator {

struct Breaker {
  bool open = false;
  std::int64_t since_ms = 0;
  std::string reason;
  std::int64_t forgiven_ms = 0;  // Unix time in milliseconds: moves started up to this time are forgiven, so
                                 // the breaker does not count them
};
template <std::same_as<Breaker> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("open", &T::open), record::field("since_ms", &T::since_ms),
                        record::field("reason", &T::reason), record::field("forgiven_ms", &T::forgiven_ms));
}

class PolicyTable {
 public:
  PolicyTable(Store& store, EventLog& events, control::asio::any_io_executor executor)
      : store_(store), events_(events), changed_(std::move(executor)) {}

  Result<void> load();

  Result<void> pause(const std::string& node, const std::string& reason);
  Result<void> resume(const std::string& node);
  [[nodiscard]] bool is_paused(const std::string& node) const;
  // Returns whether the node has ever had its own setting, which its agent may still use.
  [[nodiscard]] bool was_named(const std::string& node) const { return paused_.contains(node); }
  [[nodiscard]] const std::map<std::string, bool>& nodes() const { return paused_; }

  Result<void> open_breaker(const std::string& reason);
  Result<void> reset_breaker();
  [[nodiscard]] const Breaker& breaker() const { return breaker_; }
  // Forgives the GPU's findings up to now at the operator's request. These findings no longer keep new jobs
  // away from the GPU.
  Result<void> forgive(const Place& place);
  [[nodiscard]] std::int64_t forgiven_ms(const Place& place) const;

  // Returns "on", "paused" (on this node) or "stopped" (on all nodes, by the breaker).
  [[nodiscard]] const char* evacuation_of(const std::string& node) const;
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  Result<void> put(const std::string& key, const std::string& value);
  Result<void> set_paused(const std::string& node, bool paused);
  Result<void> set_breaker(Breaker breaker);

  Store& store_;
  EventLog& events_;
  Signal changed_;
  std::map<std::string, bool> paused_;
  std::map<std::string, std::int64_t> forgiven_;  // by place, the time up to which its findings are forgiven
  Breaker breaker_;
};

}  // namespace ckpt::coordinator
