// SPDX-License-Identifier: Apache-2.0
// Renews the certificates of the coordinator and of connected nodes, if the coordinator has the authority's
// key (setting certificate_authority). A certificate is due once two thirds of its term are over. Only
// certificates that this authority issued and that a node's connection has proven are renewed. Without a key,
// or after a failure, an event warns once a day during the certificate's last week.
// Threads: one io_context on one thread; keys and files are processed in a thread pool of this class.
// Ownership: borrows its dependencies, which outlive it. Errors: start() returns kInvalidArgument if the
// authority did not issue the coordinator's certificate. Later errors become events, and the renewal is
// retried.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/certificates/denied_certificates.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/settings/config.h"
#include "coordinator/state/event_log.h"
#include "libckpt/net/ca/authority.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::coordinator {

class CertificateRenewals {
 public:
  struct Dependencies {
    const Config& config;
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    DeniedCertificates& denied;
    control::asio::any_io_executor executor;
  };
  explicit CertificateRenewals(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the renewals. Call this once, with the coordinator's own identity.
  Result<void> start(std::shared_ptr<tls::Identity> own);
  [[nodiscard]] bool can_certify() const noexcept { return authority_.has_value(); }
  // Returns a node's certificate for the key of a signing request, or kRefused without the authority's key.
  // `shown` is the certificate that the node's connection has proven, if the request renews that certificate.
  control::Task<Result<std::string>> certify(std::string node, std::string signing_request, tls::Peer shown);

 private:
  control::Task<> run();
  control::Task<> renew_own();
  [[nodiscard]] std::vector<tls::Peer> due_nodes();
  control::Task<> renew_node(tls::Peer shown);
  control::Task<Result<void>> exchange(tls::Peer shown);
  void warn(const std::string& of, const std::string& node, std::int64_t ends_s, const Error& error);

  Dependencies deps_;
  std::shared_ptr<tls::Identity> own_;
  std::optional<tls::Authority> authority_;
  std::map<std::string, std::int64_t> warned_s_;  // the time of the last warning in Unix seconds, keyed by
                                                  // the certificate's owner
  control::asio::thread_pool pool_{1};
};

}  // namespace ckpt::coordinator
