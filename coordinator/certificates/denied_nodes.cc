// SPDX-License-Identifier: Apache-2.0
#include "coordinator/certificates/denied_nodes.h"

namespace ckpt::coordinator {
namespace {

constexpr const char* kDeniedNodesSchema =
    "CREATE TABLE IF NOT EXISTS denied_nodes (node TEXT PRIMARY KEY, reason TEXT NOT NULL, since_ms INTEGER "
    "NOT NULL); "
    "CREATE TABLE IF NOT EXISTS given_since_denial (node TEXT NOT NULL, serial TEXT NOT NULL, PRIMARY KEY "
    "(node, "
    "serial))";

}  // namespace

Result<void> DeniedNodes::load() {
  CKPT_TRYV(store_.database().execute(kDeniedNodesSchema));
  CKPT_TRY(nodes, store_.database().prepare("SELECT node, reason, since_ms FROM denied_nodes"));
  while (true) {
    CKPT_TRY(row, nodes.next());
    if (!row) break;
    Entry& entry = entries_[nodes.text(0)];
    entry.reason = nodes.text(1);
    entry.since_ms = nodes.integer(2);
  }
  CKPT_TRY(given, store_.database().prepare("SELECT node, serial FROM given_since_denial"));
  while (true) {
    CKPT_TRY(row, given.next());
    if (!row) return ok();
    if (const auto at = entries_.find(given.text(0)); at != entries_.end())
      at->second.good.insert(given.text(1));
  }
}

bool DeniedNodes::denies(const tls::Peer& peer) const {
  if (peer.kind != tls::Peer::Kind::kNode) return false;
  const auto at = entries_.find(peer.name);
  return at != entries_.end() && !at->second.good.contains(peer.serial);
}

Result<void> DeniedNodes::deny(const std::string& node, const std::string& reason, std::int64_t now_ms) {
  CKPT_TRY(forgotten, store_.database().prepare("DELETE FROM given_since_denial WHERE node = ?1"));
  CKPT_TRYV(forgotten.bind(1, node).run());
  CKPT_TRY(statement, store_.database().prepare("INSERT OR REPLACE INTO denied_nodes VALUES (?1, ?2, ?3)"));
  CKPT_TRYV(statement.bind(1, node).bind(2, reason).bind(3, now_ms).run());
  Entry& entry = entries_[node] = Entry();
  entry.reason = reason;
  entry.since_ms = now_ms;
  return ok();
}

Result<void> DeniedNodes::allow(const std::string& node) {
  if (!entries_.contains(node))
    return Error(ErrorCode::kNotFound,
                 "Node " + node + " is not denied: `gpumigrate cluster denied` lists the denied nodes");
  CKPT_TRY(forgotten, store_.database().prepare("DELETE FROM given_since_denial WHERE node = ?1"));
  CKPT_TRYV(forgotten.bind(1, node).run());
  CKPT_TRY(statement, store_.database().prepare("DELETE FROM denied_nodes WHERE node = ?1"));
  CKPT_TRYV(statement.bind(1, node).run());
  entries_.erase(node);
  return ok();
}

Result<void> DeniedNodes::given(const std::string& node, const std::string& serial) {
  const auto at = entries_.find(node);
  if (at == entries_.end()) return ok();
  CKPT_TRY(statement, store_.database().prepare("INSERT OR REPLACE INTO given_since_denial VALUES (?1, ?2)"));
  CKPT_TRYV(statement.bind(1, node).bind(2, serial).run());
  at->second.good.insert(serial);
  return ok();
}

}  // namespace ckpt::coordinator
