// SPDX-License-Identifier: Apache-2.0
// The certificates that this cluster refuses although they are valid: an operator names them, or their node was
// removed, or its name is denied (denied_nodes.h). What was renewed over one of them is denied with it
// (renewed_certificates.h). Kept in the store until each has ended. Nodes with a certificate get the list when they connect, and at
// each change. For `node rm` it is remembered which certificates a node has shown, or was given.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the store; kInvalidArgument for what names no certificate, kNotFound, kRefused for more than
// tls::DeniedSerials::kMax and for the coordinator's own.
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
    std::string of;  // whom it names, for people; empty: not known
    std::string reason;
    std::string removed_node;  // denied since this node was removed; else empty
    std::int64_t ends_s = 0;   // in seconds since 1970; 0: not known
    std::int64_t denied_ms = 0;
  };
  struct Dependencies {
    Store& store;
    EventLog& events;
    const NodeTable& nodes;
    NodeCalls& calls;
  };
  explicit DeniedCertificates(Dependencies deps) : deps_(deps), renewed_(deps.store), nodes_(deps.store) {}

  // `own`: the coordinator's, if it has one; it outlives this.
  Result<void> load(tls::Identity* own);
  // For all that admit peers; changes with the list.
  [[nodiscard]] const std::shared_ptr<tls::DeniedSerials>& serials() const noexcept { return serials_; }
  [[nodiscard]] const std::map<std::string, Entry>& all() const noexcept { return entries_; }
  // Listeners to changes of the list, which close open connections of denied peers.
  [[nodiscard]] Listeners<>& list_changed() noexcept { return list_changed_; }

  // With all that was renewed over it.
  Result<void> deny(const std::string& serial, Entry entry);
  Result<void> allow(const std::string& serial);
  // All that it has shown or was given; and back again.
  Result<void> deny_node(const std::string& node);
  Result<void> allow_node(const std::string& node);
  // Has shown its certificate.
  void on_ready(const Node& node);
  // Was given this one (PEM); `shown`: over a connection that this one had proven, or nobody. kRefused if that is
  // denied meanwhile.
  Result<void> issued(const std::string& node, const std::string& certificate, const tls::Peer& shown = {});
  // All of that name, also those that were never seen here, but for those it is given from now on.
  Result<void> deny_name(const std::string& node, const std::string& reason);
  Result<void> allow_name(const std::string& node);
  // At the handshake: one of a denied name is denied for good then.
  Result<void> admit(const tls::Peer& peer);
  [[nodiscard]] RenewedCertificates& renewed() noexcept { return renewed_; }
  // Removes the certificates that have expired by `now_s` (Unix time) from the list.
  Result<void> forget_ended(std::int64_t now_s);

  // GET /v1/certificates/denied, POST /v1/certificates/deny and /v1/certificates/allow.
  [[nodiscard]] bool takes(const HttpRequest& request) const override;
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
  std::map<std::string, Entry> entries_;  // by serial
  std::shared_ptr<tls::DeniedSerials> serials_ = std::make_shared<tls::DeniedSerials>();
  Listeners<> list_changed_;
};

}  // namespace ckpt::coordinator
