// SPDX-License-Identifier: Apache-2.0
#include "coordinator/certificates/renewed_certificates.h"

#include <algorithm>

#include "libckpt/net/ca/authority.h"

namespace ckpt::coordinator {
namespace {

constexpr const char* kRenewedSchema =
    "CREATE TABLE IF NOT EXISTS renewed_certificates (serial TEXT PRIMARY KEY, parent TEXT NOT NULL, node "
    "TEXT NOT "
    "NULL, ends_s INTEGER NOT NULL, made_s INTEGER NOT NULL, used INTEGER NOT NULL); "
    "CREATE INDEX IF NOT EXISTS renewed_by_parent ON renewed_certificates (parent)";
constexpr std::int64_t kTermS = std::chrono::seconds(tls::kNodeTerm).count();
// The time for which a renewal record is kept. It exceeds the certificate's own term because the record links
// to later renewals.
constexpr std::int64_t kKeptS = 13 * kTermS;

}  // namespace

Result<void> RenewedCertificates::load() {
  return store_.database().execute(kRenewedSchema);
}

Result<void> RenewedCertificates::add(const tls::Peer& renewed, const tls::Peer& shown, std::int64_t now_s) {
  CKPT_TRY(old, store_.database().prepare("DELETE FROM renewed_certificates WHERE ends_s < ?1"));
  CKPT_TRYV(old.bind(1, now_s - kKeptS).run());
  CKPT_TRY(statement, store_.database().prepare(
                          "INSERT OR REPLACE INTO renewed_certificates VALUES (?1, ?2, ?3, ?4, ?5, 0)"));
  statement.bind(1, renewed.serial).bind(2, shown.serial).bind(3, renewed.name);
  return statement.bind(4, renewed.ends_s).bind(5, now_s).run();
}

Result<void> RenewedCertificates::use(const std::string& serial) {
  CKPT_TRY(statement,
           store_.database().prepare("UPDATE renewed_certificates SET used = 1 WHERE serial = ?1"));
  return statement.bind(1, serial).run();
}

Result<std::int64_t> RenewedCertificates::end_of(const tls::Peer& shown) {
  CKPT_TRY(statement,
           store_.database().prepare("SELECT ifnull(max(ends_s), 0) FROM renewed_certificates WHERE "
                                     "parent = ?1 AND used = 1"));
  statement.bind(1, shown.serial);
  CKPT_TRY(any, statement.next());
  return std::max(shown.ends_s, any ? statement.integer(0) : 0);
}

Result<bool> RenewedCertificates::is_due(const tls::Peer& shown, std::int64_t now_s) {
  if (shown.serial.empty() || shown.ends_s == 0) return false;
  CKPT_TRY(ends_s, end_of(shown));
  if (ends_s - now_s >= kTermS / 3) return false;
  CKPT_TRY(statement, store_.database().prepare(
                          "SELECT ifnull(max(made_s), 0) FROM renewed_certificates WHERE parent = ?1"));
  statement.bind(1, shown.serial);
  CKPT_TRY(any, statement.next());
  const std::int64_t made_s = any ? statement.integer(0) : 0;
  return made_s == 0 || now_s - made_s >= kTermS / 30;
}

Result<std::vector<tls::Peer>> RenewedCertificates::descendants(const std::string& serial) {
  CKPT_TRY(statement,
           store_.database().prepare(
               "WITH RECURSIVE line(serial, node, ends_s) AS (SELECT serial, node, ends_s FROM "
               "renewed_certificates WHERE parent = ?1 UNION SELECT r.serial, r.node, r.ends_s FROM "
               "renewed_certificates r JOIN line ON r.parent = line.serial) SELECT serial, node, ends_s FROM "
               "line"));
  statement.bind(1, serial);
  std::vector<tls::Peer> found;
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return found;
    tls::Peer& peer = found.emplace_back(tls::Peer::node(statement.text(1)));
    peer.serial = statement.text(0);
    peer.ends_s = statement.integer(2);
  }
}

}  // namespace ckpt::coordinator
