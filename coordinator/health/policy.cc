// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/policy.h"

#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr const char* kPolicySchema =
    "CREATE TABLE IF NOT EXISTS health_policy (key TEXT PRIMARY KEY, value TEXT NOT NULL)";
constexpr const char* kBreakerKey = "breaker";
constexpr std::string_view kNodePrefix = "paused/";
constexpr std::string_view kForgivenPrefix = "forgiven/";

}  // namespace

Result<void> PolicyTable::load() {
  CKPT_TRYV(store_.database().execute(kPolicySchema));
  CKPT_TRY(statement, store_.database().prepare("SELECT key, value FROM health_policy"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    const std::string key = statement.text(0);
    if (key.starts_with(kNodePrefix)) paused_[key.substr(kNodePrefix.size())] = statement.text(1) == "1";
    try {
      if (key.starts_with(kForgivenPrefix))
        forgiven_[key.substr(kForgivenPrefix.size())] = std::stoll(statement.text(1));
      if (key != kBreakerKey) continue;
      breaker_ = record::from_text<Breaker>(statement.text(1));
    } catch (const std::exception& e) {
      return Error(ErrorCode::kCorrupt,
                   "Row " + key + " of table health_policy cannot be decoded: " + e.what());
    }
  }
}

Result<void> PolicyTable::pause(const std::string& node, const std::string& reason) {
  if (is_paused(node)) return ok();
  CKPT_TRYV(set_paused(node, true));
  events_.add(
      "policy-paused",
      "findings of " + node + " are recorded, but cause no action" + (reason.empty() ? "" : ": " + reason),
      node);
  return ok();
}

Result<void> PolicyTable::resume(const std::string& node) {
  if (!is_paused(node)) return ok();
  CKPT_TRYV(set_paused(node, false));
  events_.add("policy-resumed", "findings of " + node + " cause actions again", node);
  return ok();
}

bool PolicyTable::is_paused(const std::string& node) const {
  const auto at = paused_.find(node);
  return at != paused_.end() && at->second;
}

Result<void> PolicyTable::open_breaker(const std::string& reason) {
  Breaker breaker = breaker_;
  breaker.open = true;
  breaker.since_ms = wall_clock_ms();
  breaker.reason = reason;
  CKPT_TRYV(set_breaker(std::move(breaker)));
  events_.add("breaker-open", "automatic moves have stopped: " + reason +
                                  "; `gpumigrate policy reset-breaker` allows them again");
  return ok();
}

Result<void> PolicyTable::reset_breaker() {
  Breaker breaker;
  breaker.forgiven_ms = wall_clock_ms();
  const bool was_open = breaker_.open;
  CKPT_TRYV(set_breaker(std::move(breaker)));
  if (was_open) events_.add("breaker-reset", "automatic moves are allowed again");
  return ok();
}

Result<void> PolicyTable::forgive(const Place& place) {
  const std::int64_t now = wall_clock_ms();
  CKPT_TRYV(put(std::string(kForgivenPrefix) + to_text(place), std::to_string(now)));
  forgiven_[to_text(place)] = now;
  changed_.notify();
  return ok();
}

std::int64_t PolicyTable::forgiven_ms(const Place& place) const {
  const auto at = forgiven_.find(to_text(place));
  return at == forgiven_.end() ? 0 : at->second;
}

const char* PolicyTable::evacuation_of(const std::string& node) const {
  if (is_paused(node)) return "paused";
  return breaker_.open ? "stopped" : "on";
}

Result<void> PolicyTable::put(const std::string& key, const std::string& value) {
  CKPT_TRY(statement, store_.database().prepare("INSERT OR REPLACE INTO health_policy VALUES (?1, ?2)"));
  return statement.bind(1, key).bind(2, value).run();
}

Result<void> PolicyTable::set_paused(const std::string& node, bool paused) {
  CKPT_TRYV(put(std::string(kNodePrefix) + node, paused ? "1" : "0"));
  paused_[node] = paused;
  changed_.notify();
  return ok();
}

Result<void> PolicyTable::set_breaker(Breaker breaker) {
  CKPT_TRYV(put(kBreakerKey, record::to_text(breaker)));
  breaker_ = std::move(breaker);
  changed_.notify();
  return ok();
}

}  // namespace ckpt::coordinator
