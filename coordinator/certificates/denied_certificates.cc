// SPDX-License-Identifier: Apache-2.0
#include "coordinator/certificates/denied_certificates.h"

#include <spdlog/spdlog.h>

#include "coordinator/api/optional_text.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/api/site.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/protocol/wire/certificate_messages.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxReasonBytes = 1024;
constexpr std::int64_t kClocksDifferS = 24 * 3600;  // the allowance in seconds for a node's clock that is
                                                    // behind
constexpr const char* kDeniedSchema =
    "CREATE TABLE IF NOT EXISTS denied_certificates (serial TEXT PRIMARY KEY, subject TEXT NOT NULL, reason "
    "TEXT "
    "NOT NULL, "
    "removed_node TEXT NOT NULL, ends_s INTEGER NOT NULL, denied_ms INTEGER NOT NULL); "
    "CREATE TABLE IF NOT EXISTS node_certificates (node TEXT NOT NULL, serial TEXT NOT NULL, ends_s INTEGER "
    "NOT NULL, "
    "PRIMARY KEY (node, serial))";

std::int64_t unix_now_s() {
  return wall_clock_ms() / 1000;
}

bool has_ended(std::int64_t ends_s, std::int64_t now) {
  return ends_s != 0 && ends_s + kClocksDifferS < now;
}

Result<void> check_node_name(const std::string& node) {
  if (valid_job_name(node))
    return ok();  // node names permit the same characters as job names, so the same
                  // check applies
  return Error(ErrorCode::kInvalidArgument, "\"" + node + "\" is not a valid node name");
}

}  // namespace

Result<void> DeniedCertificates::load(tls::Identity* own) {
  own_ = own;
  CKPT_TRYV(deps_.store.database().execute(kDeniedSchema));
  CKPT_TRYV(renewed_.load());
  CKPT_TRYV(nodes_.load());
  CKPT_TRY(statement,
           deps_.store.database().prepare(
               "SELECT serial, subject, reason, removed_node, ends_s, denied_ms FROM denied_certificates"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) break;
    Entry& entry = entries_[statement.text(0)];
    entry.of = statement.text(1);
    entry.reason = statement.text(2);
    entry.removed_node = statement.text(3);
    entry.ends_s = statement.integer(4);
    entry.denied_ms = statement.integer(5);
  }
  changed();
  return remove_ended(unix_now_s());
}

Result<void> DeniedCertificates::put(const std::string& serial, const Entry& entry) {
  CKPT_TRY(statement, deps_.store.database().prepare(
                          "INSERT OR REPLACE INTO denied_certificates VALUES (?1, ?2, ?3, ?4, ?5, ?6)"));
  statement.bind(1, serial).bind(2, entry.of).bind(3, entry.reason).bind(4, entry.removed_node);
  return statement.bind(5, entry.ends_s).bind(6, entry.denied_ms).run();
}

Result<void> DeniedCertificates::deny(const std::string& serial, Entry entry) {
  CKPT_TRYV(remove_ended(unix_now_s()));
  CKPT_TRY(renewed, renewed_.descendants(serial));
  const bool is_over = has_ended(entry.ends_s, unix_now_s());
  if (!is_over || renewed.empty()) {
    CKPT_TRYV(deny_one(serial, entry));
  }
  for (const tls::Peer& later : renewed) {
    if (has_ended(later.ends_s, unix_now_s()) || entries_.contains(later.serial)) continue;
    Entry also = entry;
    also.of = to_text(later);
    also.ends_s = later.ends_s;
    also.reason = "renewed from " + serial + (entry.reason.empty() ? "" : ": " + entry.reason);
    CKPT_TRYV(deny_one(later.serial, std::move(also)));
  }
  return ok();
}

Result<void> DeniedCertificates::deny_one(const std::string& serial, Entry entry) {
  if (own_ != nullptr) own_->refresh();  // the certificate file may have been replaced since the last read
  if (own_ != nullptr && own_->subject().serial == serial)
    return Error(
        ErrorCode::kRefused,
        "Certificate " + serial + " is the coordinator's own: first renew it with `gpumigrate cluster init`");
  if (has_ended(entry.ends_s, unix_now_s()))
    return Error(ErrorCode::kInvalidArgument,
                 "Certificate " + serial + " has expired and is already refused");
  if (entries_.size() >= tls::DeniedSerials::kMax && !entries_.contains(serial))
    return Error(ErrorCode::kRefused, std::to_string(entries_.size()) +
                                          " certificates are denied, which is the maximum: create a new "
                                          "authority, or allow some with `gpumigrate cluster allow`");
  entry.denied_ms = wall_clock_ms();
  CKPT_TRYV(put(serial, entry));
  const std::string of = entry.of.empty() ? std::string() : " of " + entry.of;
  deps_.events.add("certificate-denied", "certificate " + serial + of + " is denied" +
                                             (entry.reason.empty() ? "" : ": " + entry.reason));
  entries_[serial] = std::move(entry);
  changed();
  return ok();
}

Result<void> DeniedCertificates::allow(const std::string& serial) {
  if (!entries_.contains(serial))
    return Error(ErrorCode::kNotFound,
                 "Certificate " + serial +
                     " is not denied: `gpumigrate cluster denied` lists the denied certificates");
  CKPT_TRY(statement, deps_.store.database().prepare("DELETE FROM denied_certificates WHERE serial = ?1"));
  CKPT_TRYV(statement.bind(1, serial).run());
  entries_.erase(serial);
  deps_.events.add("certificate-allowed", "certificate " + serial + " is no longer denied");
  changed();
  return ok();
}

Result<std::map<std::string, std::int64_t>> DeniedCertificates::known_of(const std::string& node) {
  std::map<std::string, std::int64_t> known;
  CKPT_TRY(statement,
           deps_.store.database().prepare("SELECT serial, ends_s FROM node_certificates WHERE node = ?1"));
  statement.bind(1, node);
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) break;
    known[statement.text(0)] = statement.integer(1);
  }
  return known;
}

Result<void> DeniedCertificates::deny_name(const std::string& node, const std::string& reason) {
  CKPT_TRYV(nodes_.deny(node, reason, wall_clock_ms()));
  deps_.events.add("node-denied",
                   "certificates of node " + node + " that were issued before now are denied" +
                       (reason.empty() ? "" : ": " + reason),
                   node);
  CKPT_TRY(known, known_of(node));
  for (const auto& [serial, ends_s] : known) {
    if (has_ended(ends_s, unix_now_s()) || entries_.contains(serial)) continue;
    Entry entry;
    entry.of = "node " + node;
    entry.reason = reason;
    entry.ends_s = ends_s;
    CKPT_TRYV(deny(serial, std::move(entry)));
  }
  return ok();
}

Result<void> DeniedCertificates::allow_name(const std::string& node) {
  CKPT_TRYV(nodes_.allow(node));
  deps_.events.add("node-allowed", "the name of node " + node + " is no longer denied", node);
  return ok();
}

Result<void> DeniedCertificates::admit(const tls::Peer& peer) {
  if (!nodes_.denies(peer)) return ok();
  // Nodes check serial numbers only. So the serial number of a certificate with a denied name is added to the
  // list.
  Entry entry;
  entry.of = to_text(peer);
  entry.reason = "its node is denied";
  entry.ends_s = peer.ends_s;
  if (!peer.serial.empty() && !entries_.contains(peer.serial)) {
    CKPT_TRYV(deny(peer.serial, std::move(entry)));
  }
  return Error(ErrorCode::kRefused, "Node " + peer.name +
                                        " is denied: let it join again with a token (`gpumigrate node "
                                        "token`), or lift the denial with `gpumigrate cluster allow --node`");
}

Result<void> DeniedCertificates::deny_node(const std::string& node) {
  CKPT_TRY(known, known_of(node));
  for (const auto& [serial, ends_s] : known) {
    if (has_ended(ends_s, unix_now_s()) || entries_.contains(serial)) continue;
    Entry entry;
    entry.of = "node " + node;
    entry.reason = "the node was removed";
    entry.removed_node = node;
    entry.ends_s = ends_s;
    CKPT_TRYV(deny(serial, std::move(entry)));
  }
  CKPT_TRY(removal, deps_.store.database().prepare("DELETE FROM node_certificates WHERE node = ?1"));
  return removal.bind(1, node).run();
}

Result<void> DeniedCertificates::allow_node(const std::string& node) {
  std::vector<std::string> meant;
  for (const auto& [serial, entry] : entries_)
    if (entry.removed_node == node) meant.push_back(serial);
  for (const std::string& serial : meant) {
    tls::Peer back = tls::Peer::node(node);
    back.serial = serial;
    back.ends_s = entries_.at(serial).ends_s;
    CKPT_TRYV(allow(serial));
    CKPT_TRYV(remember(node, back));
  }
  return ok();
}

Result<void> DeniedCertificates::remember(const std::string& node, const tls::Peer& shown) {
  CKPT_TRY(old, deps_.store.database().prepare(
                    "DELETE FROM node_certificates WHERE node = ?1 AND ends_s != 0 AND ends_s < ?2"));
  CKPT_TRYV(old.bind(1, node).bind(2, unix_now_s() - kClocksDifferS).run());
  CKPT_TRY(statement,
           deps_.store.database().prepare("INSERT OR REPLACE INTO node_certificates VALUES (?1, ?2, ?3)"));
  return statement.bind(1, node).bind(2, shown.serial).bind(3, shown.ends_s).run();
}

Result<void> DeniedCertificates::issued(const std::string& node, const std::string& certificate,
                                        const tls::Peer& shown) {
  CKPT_TRY(read, tls::certificate_of(certificate));
  CKPT_TRY(peer, tls::peer_of(read.get()));
  if (!shown.serial.empty()) {
    CKPT_TRYV(renewed_.add(peer, shown, unix_now_s()));
    if (entries_.contains(shown.serial)) {
      Entry entry = entries_.at(shown.serial);
      entry.of = to_text(peer);
      entry.ends_s = peer.ends_s;
      CKPT_TRYV(deny(peer.serial, std::move(entry)));
      return Error(ErrorCode::kRefused, "the certificate that it presented is denied");
    }
  }
  CKPT_TRYV(nodes_.given(node, peer.serial));
  return remember(node, peer);
}

void DeniedCertificates::on_ready(const Node& node) {
  const tls::Peer& shown = node.connection->certified();
  if (!shown.serial.empty()) {
    if (auto remembered = remember(node.row.name, shown); !remembered)
      spdlog::error("the certificate of node {} was not recorded: {}", node.row.name,
                    remembered.error().to_string());
  }
  send(node);
}

Result<void> DeniedCertificates::remove_ended(std::int64_t now) {
  const std::size_t before = entries_.size();
  CKPT_TRY(statement, deps_.store.database().prepare(
                          "DELETE FROM denied_certificates WHERE ends_s != 0 AND ends_s + ?1 < ?2"));
  CKPT_TRYV(statement.bind(1, kClocksDifferS).bind(2, now).run());
  std::erase_if(entries_, [now](const auto& entry) { return has_ended(entry.second.ends_s, now); });
  if (entries_.size() != before) changed();
  return ok();
}

void DeniedCertificates::send(const Node& node) {
  if (node.certificate_ends_s == 0) return;  // a node without a certificate checks no certificates
  wire::DenyCertificates list;
  list.serials.assign(serials_->all().begin(), serials_->all().end());
  deps_.calls.send(node.row.name, list);
}

void DeniedCertificates::changed() {
  std::vector<std::string> serials;
  serials.reserve(entries_.size());
  for (const auto& [serial, entry] : entries_) serials.push_back(serial);
  if (auto replaced = serials_->replace(serials); !replaced)
    spdlog::error("the list of denied certificates cannot be used: {}", replaced.error().to_string());
  list_changed_.notify();
  for (const auto& [name, node] : deps_.nodes.all())
    if (node.connected()) send(node);
}

bool DeniedCertificates::handles(const HttpRequest& request) const {
  return request.path[1] == "certificates";
}

control::Task<Result<HttpResponse>> DeniedCertificates::handle(HttpRequest request) {
  if (request.path[2] == "deny") co_return handle_denial(request.body);
  if (request.path[2] == "allow") co_return handle_allowance(request.body);
  CKPT_CO_TRYV(remove_ended(unix_now_s()));
  co_return list();
}

Result<HttpResponse> DeniedCertificates::handle_denial(const std::string& text) {
  CKPT_TRY(body, BodyReader::parse(text));
  const auto given = body.text("serial");
  const auto certificate = body.text("certificate");
  const auto node = body.text("node");
  Entry entry;
  entry.reason = body.text("reason").value_or("").substr(0, kMaxReasonBytes);
  CKPT_TRYV(body.finish());
  if (int{given.has_value()} + int{certificate.has_value()} + int{node.has_value()} != 1)
    return Error(ErrorCode::kInvalidArgument,
                 "Give exactly one of \"serial\", \"certificate\" and \"node\" to deny");
  if (node) {
    CKPT_TRYV(check_node_name(*node));
    CKPT_TRYV(deny_name(*node, entry.reason));
    return to_response(200, record::to_answer(api::NodeSubject{*node}));
  }
  std::string serial;
  if (certificate) {
    CKPT_TRY(read, tls::certificate_of(*certificate));
    CKPT_TRY(peer, tls::peer_of(read.get()));
    serial = peer.serial;
    entry.of = to_text(peer);
    entry.ends_s = peer.ends_s;
  } else {
    CKPT_TRY(checked, tls::serial_of_text(*given));
    serial = std::move(checked);
  }
  CKPT_TRYV(deny(serial, std::move(entry)));
  return to_response(200, record::to_answer(api::SerialSubject{serial}));
}

Result<HttpResponse> DeniedCertificates::handle_allowance(const std::string& text) {
  CKPT_TRY(body, BodyReader::parse(text));
  const auto given = body.text("serial");
  const auto node = body.text("node");
  CKPT_TRYV(body.finish());
  if (given.has_value() == node.has_value())
    return Error(ErrorCode::kInvalidArgument, "Give either \"serial\" or \"node\" to allow");
  if (node) {
    CKPT_TRYV(allow_name(*node));
    return to_response(200, record::to_answer(api::NodeSubject{*node}));
  }
  CKPT_TRY(serial, tls::serial_of_text(given.value_or("")));
  CKPT_TRYV(allow(serial));
  return to_response(200, record::to_answer(api::SerialSubject{serial}));
}

HttpResponse DeniedCertificates::list() const {
  json out = json::array();
  for (const auto& [node, entry] : nodes_.all())
    out.push_back(record::to_answer(
        api::DeniedCertificate{.of = "node " + node + ", except certificates that were issued since then",
                               .reason = entry.reason,
                               .denied = time_text(entry.since_ms)}));
  for (const auto& [serial, entry] : entries_)
    out.push_back(record::to_answer(api::DeniedCertificate{.serial = serial,
                                                           .of = entry.of,
                                                           .reason = entry.reason,
                                                           .ends = time_if_any(entry.ends_s * 1000),
                                                           .denied = time_text(entry.denied_ms)}));
  return to_response(200, out);
}

}  // namespace ckpt::coordinator
