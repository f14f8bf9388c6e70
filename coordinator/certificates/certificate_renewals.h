// SPDX-License-Identifier: Apache-2.0
// Renews the certificates of the coordinator and of connected nodes, where it has the authority's key (setting
// certificate_authority). They are due once two thirds of what it gives are over, which a node's connection proves. Where it has no key, or fails, an
// event warns once a day during the last week.
// Threads: one io_context on one thread; keys and files are worked on in a pool of its own. Ownership: borrows its
// dependencies, which outlive it. Errors: start(): kInvalidArgument where the authority is not that of the
// coordinator's certificate. Later ones become events, and are tried again.
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

  // Once, with the coordinator's own.
  Result<void> start(std::shared_ptr<tls::Identity> own);
  [[nodiscard]] bool can_certify() const noexcept { return authority_.has_value(); }
  // A node's certificate for the key of a request. kRefused without the authority's key.
  // `shown`: the certificate that its connection has proven, if it is one that is renewed.
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
  std::map<std::string, std::int64_t> warned_s_;  // by whose certificate it is
  control::asio::thread_pool pool_{1};
};

}  // namespace ckpt::coordinator
