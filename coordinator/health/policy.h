// SPDX-License-Identifier: Apache-2.0
// Whether automatic moves are on, as the operator and the circuit breaker have decided. They can be off for
// single nodes, or altogether. Durable before a call returns.
// Threads: one io_context on one thread. Errors: those of the store; then nothing has changed.
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
  std::int64_t forgiven_ms = 0;  // moves that started until then count no more
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
  // It had a setting of its own at some time, which its agent may still use.
  [[nodiscard]] bool was_named(const std::string& node) const { return paused_.contains(node); }
  [[nodiscard]] const std::map<std::string, bool>& nodes() const { return paused_; }

  Result<void> open_breaker(const std::string& reason);
  Result<void> reset_breaker();
  [[nodiscard]] const Breaker& breaker() const { return breaker_; }
  // Findings of the GPU up to now do not keep new jobs from it any more, by the operator's word.
  Result<void> forgive(const Place& place);
  [[nodiscard]] std::int64_t forgiven_ms(const Place& place) const;

  // "on", "paused" (here) or "stopped" (everywhere, by the breaker).
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
  std::map<std::string, std::int64_t> forgiven_;  // by place
  Breaker breaker_;
};

}  // namespace ckpt::coordinator
