// SPDX-License-Identifier: Apache-2.0
// The certificates that this cluster refuses although they are valid. Reasons: an operator named the
// certificate, its node was removed, or its node's name is denied (denied_nodes.h). Denying a certificate
// also denies its renewals (renewed_certificates.h). Each entry is stored until its certificate expires.
// Nodes with a certificate receive the list when they connect, and at each change. For `node rm`, the store
// also records which certificates each node has presented or was issued.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the store; kInvalidArgument for text that names no certificate; kNotFound; kRefused for more than
// tls::DeniedSerials::kMax certificates and for the coordinator's own certificate.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "coordinator/certificates/denied_nodes.h"
#include "coordinator/certificates/renewed_certificates.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/requests/api_section.h"
#include "coordinator/state/event_log.h"
#include "coordinator/state/listeners.h"
#include "libckpt/net/tls/cert_denied.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::coordinator {

class DeniedCertificates : public ApiSection {
 public:
  struct Entry {
    std::string of;  // the certificate's subject, for display; empty: not known
    std::string reason;
    std::string removed_node;  // the removed node that caused this denial; empty: another cause
    std::int64_t ends_s = 0;   // the certificate's expiry in seconds since 1970; 0: not known
    std::int64_t denied_ms = 0;
  };
  struct Dependencies {
    Store& store;
    EventLog& events;
    const NodeTable& nodes;
    NodeCalls& calls;
  };
  explicit DeniedCertificates(Dependencies deps) : deps_(deps), renewed_(deps.store), nodes_(deps.store) {}

  // Loads the list from the store. `own` is the coordinator's identity, or null; it outlives this object.
  Result<void> load(tls::Identity* own);
  // Returns the denied serial numbers, for all parts that admit peers. The returned object changes with the
  // list.
  [[nodiscard]] const std::shared_ptr<tls::DeniedSerials>& serials() const noexcept { return serials_; }
  [[nodiscard]] const std::map<std::string, Entry>& all() const noexcept { return entries_; }
  // Returns the listeners to changes of the list. They close open connections of denied peers.
  [[nodiscard]] Listeners<>& list_changed() noexcept { return list_changed_; }

  // Denies (or allows) a certificate together with all its renewals.
  Result<void> deny(const std::string& serial, Entry entry);
  Result<void> allow(const std::string& serial);
  // Denies (or allows again) all certificates that the node has presented or was issued.
  Result<void> deny_node(const std::string& node);
  Result<void> allow_node(const std::string& node);
  // Records the certificate that the node has presented, when the node becomes ready.
  void on_ready(const Node& node);
  // Records a certificate (PEM) that was issued to the node. `shown` is the certificate that the requesting
  // connection had proven, or is empty. Returns kRefused if `shown` was denied in the meantime.
  Result<void> issued(const std::string& node, const std::string& certificate, const tls::Peer& shown = {});
  // Denies (or allows again) all certificates of that node name, including certificates that this cluster has
  // never seen. Certificates issued to the node from now on are valid.
  Result<void> deny_name(const std::string& node, const std::string& reason);
  Result<void> allow_name(const std::string& node);
  // Checks a peer's certificate at the handshake. A certificate with a denied name is then denied
  // permanently.
  Result<void> admit(const tls::Peer& peer);
  [[nodiscard]] RenewedCertificates& renewed() noexcept { return renewed_; }
  // Removes the certificates that have expired by `now_s` (Unix time) from the list. A certificate counts as
  // expired kClocksDifferS after its expiry.
  Result<void> remove_ended(std::int64_t now_s);

  // These functions handle GET /v1/certificates/denied, POST /v1/certificates/deny and
  // /v1/certificates/allow.
  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  Result<void> deny_one(const std::string& serial, Entry entry);
  Result<std::map<std::string, std::int64_t>> known_of(const std::string& node);
  Result<void> remember(const std::string& node, const tls::Peer& shown);
  Result<void> put(const std::string& serial, const Entry& entry);
  Result<HttpResponse> handle_denial(const std::string& body);
  Result<HttpResponse> handle_allowance(const std::string& body);
  [[nodiscard]] HttpResponse list() const;
  void send(const Node& node);
  void changed();

  Dependencies deps_;
  RenewedCertificates renewed_;
  DeniedNodes nodes_;
  tls::Identity* own_ = nullptr;
  std::map<std::string, Entry> entries_;  // denied certificates by serial number
  std::shared_ptr<tls::DeniedSerials> serials_ = std::make_shared<tls::DeniedSerials>();
  Listeners<> list_changed_;
};

}  // namespace ckpt::coordinator
