// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/cordons.h"

#include <algorithm>
#include <iterator>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kWholeNode = -1;
constexpr const char* kCordonSchema =
    "CREATE TABLE IF NOT EXISTS cordons (node TEXT NOT NULL, gpu INTEGER NOT NULL, owner INTEGER NOT NULL, "
    "reason TEXT NOT NULL, since_ms INTEGER NOT NULL, PRIMARY KEY (node, gpu, owner))";

std::int64_t column_of(const std::optional<std::uint32_t>& gpu) {
  return gpu ? std::int64_t{*gpu} : kWholeNode;
}

}  // namespace

std::string_view to_string(CordonOwner owner) noexcept {
  return owner == CordonOwner::kHealth ? "health" : "operator";
}

std::string to_text(const Cordon& cordon) {
  return "cordoned by " + std::string(to_string(cordon.owner)) +
         (cordon.reason.empty() ? "" : ": " + cordon.reason);
}

Result<void> CordonTable::load() {
  CKPT_TRYV(store_.database().execute(kCordonSchema));
  CKPT_TRY(statement,
           store_.database().prepare(
               "SELECT node, gpu, owner, reason, since_ms FROM cordons ORDER BY node, gpu, owner"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    Cordon& cordon = cordons_.emplace_back();
    cordon.scope.node = statement.text(0);
    if (statement.integer(1) != kWholeNode)
      cordon.scope.gpu = static_cast<std::uint32_t>(statement.integer(1));
    cordon.owner = statement.integer(2) == static_cast<std::int64_t>(CordonOwner::kHealth)
                       ? CordonOwner::kHealth
                       : CordonOwner::kOperator;
    cordon.reason = statement.text(3);
    cordon.since_ms = statement.integer(4);
  }
}

Result<void> CordonTable::set(const Scope& scope, CordonOwner owner, std::string reason) {
  Cordon cordon;
  cordon.scope = scope;
  cordon.owner = owner;
  cordon.reason = std::move(reason);
  cordon.since_ms = wall_clock_ms();
  const auto known = std::find_if(cordons_.begin(), cordons_.end(), [&](const Cordon& other) {
    return other.scope == scope && other.owner == owner;
  });
  if (known != cordons_.end()) {
    if (cordon.reason.empty() || cordon.reason == known->reason) return ok();
    cordon.since_ms = known->since_ms;
  }
  CKPT_TRY(statement,
           store_.database().prepare("INSERT OR REPLACE INTO cordons VALUES (?1, ?2, ?3, ?4, ?5)"));
  statement.bind(1, scope.node).bind(2, column_of(scope.gpu)).bind(3, static_cast<std::int64_t>(owner));
  statement.bind(4, cordon.reason).bind(5, cordon.since_ms);
  CKPT_TRYV(statement.run());
  events_.add("cordoned", to_text(scope) + " is " + to_text(cordon), scope.node);
  if (known == cordons_.end())
    cordons_.push_back(std::move(cordon));
  else
    *known = std::move(cordon);
  changed_.notify();
  return ok();
}

Result<std::vector<Cordon>> CordonTable::clear(const Scope& scope) {
  std::vector<Cordon> cleared;
  std::copy_if(cordons_.begin(), cordons_.end(), std::back_inserter(cleared),
               [&](const Cordon& cordon) { return cordon.scope == scope; });
  if (cleared.empty()) return cleared;
  CKPT_TRY(statement, store_.database().prepare("DELETE FROM cordons WHERE node = ?1 AND gpu = ?2"));
  CKPT_TRYV(statement.bind(1, scope.node).bind(2, column_of(scope.gpu)).run());
  std::erase_if(cordons_, [&](const Cordon& cordon) { return cordon.scope == scope; });
  for (const Cordon& cordon : cleared)
    events_.add("uncordoned", to_text(scope) + " is no longer " + to_text(cordon), scope.node);
  changed_.notify();
  return cleared;
}

const Cordon* CordonTable::find(const Scope& scope, CordonOwner owner) const {
  const auto at = std::find_if(cordons_.begin(), cordons_.end(), [&](const Cordon& cordon) {
    return cordon.scope == scope && cordon.owner == owner;
  });
  return at == cordons_.end() ? nullptr : &*at;
}

std::vector<Cordon> CordonTable::of_node(const std::string& node) const {
  std::vector<Cordon> found;
  std::copy_if(cordons_.begin(), cordons_.end(), std::back_inserter(found),
               [&](const Cordon& cordon) { return cordon.scope.node == node; });
  return found;
}

std::vector<Cordon> CordonTable::over(const Place& place) const {
  std::vector<Cordon> found;
  std::copy_if(cordons_.begin(), cordons_.end(), std::back_inserter(found),
               [&](const Cordon& cordon) { return cordon.scope.covers(place); });
  return found;
}

std::string CordonTable::why_closed(const Place& place) const {
  std::string reason;
  for (const Cordon& cordon : over(place)) reason += (reason.empty() ? "" : "; ") + to_text(cordon);
  return reason;
}

}  // namespace ckpt::coordinator
