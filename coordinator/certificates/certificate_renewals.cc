// SPDX-License-Identifier: Apache-2.0
#include "coordinator/certificates/certificate_renewals.h"

#include <spdlog/spdlog.h>

#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kDayS = std::int64_t{24} * 3600;
constexpr std::int64_t kWarnS = 7 * kDayS;
constexpr std::chrono::seconds kInstalled{30};  // the limit for a node to write the two files of its renewed
                                                // certificate

std::int64_t now_s() {
  return wall_clock_ms() / 1000;
}

// Checks whether the last third of the certificate's term has begun.
bool is_due(std::int64_t ends_s, std::chrono::seconds term) {
  return ends_s - now_s() < term.count() / 3;
}

// Creates a new key and certificate for the same name and hosts, and writes them to the same files.
Result<void> renew_files(const tls::Authority& authority, const tls::CertFiles& files) {
  CKPT_TRY(text, read_file(files.certificate, tls::kMaxPemBytes));
  CKPT_TRY(hosts, tls::hosts_of(text));
  tls::Authority::Order order;
  order.subject = tls::Peer::coordinator();
  order.hosts = std::move(hosts);
  order.term = tls::kCoordinatorTerm;
  CKPT_TRY(issued, authority.sign(order));
  return tls::replace_pair(files.certificate, issued.certificate, files.key, issued.key);
}

}  // namespace

Result<void> CertificateRenewals::start(std::shared_ptr<tls::Identity> own) {
  own_ = std::move(own);
  if (!deps_.config.certificate_authority.empty()) {
    CKPT_TRY(authority, tls::Authority::read(deps_.config.certificate_authority));
    CKPT_TRY(text, read_file(own_->files().certificate, tls::kMaxPemBytes));
    if (!authority.has_signed(text))
      return Error(ErrorCode::kInvalidArgument, "The certificate authority in " +
                                                    deps_.config.certificate_authority + " did not sign " +
                                                    own_->files().certificate);
    authority_ = std::move(authority);
  }
  control::spawn(deps_.executor, "renewal of certificates", run());
  return ok();
}

control::Task<> CertificateRenewals::run() {
  control::asio::steady_timer timer(deps_.executor);
  while (true) {
    own_->refresh();
    if (is_due(own_->expires_unix_s(), tls::kCoordinatorTerm)) co_await renew_own();
    for (const tls::Peer& shown : due_nodes()) co_await renew_node(shown);
    timer.expires_after(std::chrono::milliseconds(deps_.config.certificate_check_ms));
    co_await timer.async_wait(control::kTuple);
  }
}

// Returns the node certificates that are due for renewal. A node is identified by the certificate that its
// connection has proven, not by the name that it claims.
std::vector<tls::Peer> CertificateRenewals::due_nodes() {
  std::vector<tls::Peer> due;
  for (const auto& [name, node] : deps_.nodes.all()) {
    if (!node.connected() || node.connection->certified() != tls::Peer::node(name)) continue;
    const tls::Peer& shown = node.connection->certified();
    const auto is_due = deps_.denied.renewed().is_due(shown, now_s());
    if (!is_due)
      spdlog::error("cannot determine whether the certificate of node {} is due for renewal: {}", name,
                    is_due.error().to_string());
    else if (*is_due)
      due.push_back(shown);
  }
  return due;
}

control::Task<> CertificateRenewals::renew_own() {
  Result<void> renewed = Error(ErrorCode::kRefused, "certificate_authority is not set in its settings");
  if (authority_) {
    auto renew = [authority = &*authority_, files = own_->files()] { return renew_files(*authority, files); };
    renewed = co_await control::offload(pool_, std::move(renew));
  }
  own_->refresh();
  if (renewed)
    deps_.events.add("certificate-renewed", "the coordinator's certificate was renewed");
  else
    warn("the coordinator", {}, own_->expires_unix_s(), renewed.error());
}

control::Task<> CertificateRenewals::renew_node(tls::Peer shown) {
  const std::string node = shown.name;
  const auto ends = deps_.denied.renewed().end_of(shown);
  const std::int64_t ends_s = ends ? *ends : shown.ends_s;
  const Result<void> renewed = co_await exchange(shown);
  if (renewed)
    deps_.events.add("certificate-renewed", "the certificate of node " + node + " was renewed", node);
  else
    warn("node " + node, node, ends_s, renewed.error());
}

control::Task<Result<std::string>> CertificateRenewals::certify(std::string node, std::string signing_request,
                                                                tls::Peer shown) {
  if (!authority_)
    co_return Error(ErrorCode::kRefused, "certificate_authority is not set in the coordinator's settings");
  CKPT_CO_TRY(addresses, tls::addresses_of_request(signing_request));
  tls::Authority::Order order;
  order.subject = tls::Peer::node(node);
  order.hosts = std::move(addresses);  // the addresses that the node itself claims; parts of a cluster verify
                                       // each other by name, not by address
  order.term = tls::kNodeTerm;
  auto certify = [authority = &*authority_, request = std::move(signing_request), order = std::move(order)] {
    return authority->certify(request, order);
  };
  CKPT_CO_TRY(certificate, co_await control::offload(pool_, std::move(certify)));
  CKPT_CO_TRYV(deps_.denied.issued(node, certificate, shown));
  co_return std::move(certificate);
}

control::Task<Result<void>> CertificateRenewals::exchange(tls::Peer shown) {
  const std::string node = shown.name;
  if (!authority_)
    co_return Error(ErrorCode::kRefused, "certificate_authority is not set in the coordinator's settings");
  CKPT_CO_TRY(made, co_await deps_.calls.ask_for_key(node));
  CKPT_CO_TRY(certificate, co_await certify(node, std::move(made.signing_request), shown));
  CKPT_CO_TRY(renewed, tls::certificate_of(certificate));
  const std::string serial = tls::serial_of(renewed.get());
  wire::UseCertificate use;
  use.certificate = std::move(certificate);
  CKPT_CO_TRYV(co_await deps_.calls.call(node, std::move(use), kInstalled));
  co_return deps_.denied.renewed().use(serial);
}

void CertificateRenewals::warn(const std::string& of, const std::string& node, std::int64_t ends_s,
                               const Error& error) {
  const std::int64_t left_s = ends_s - now_s();
  std::int64_t& warned_s = warned_s_[of];
  if (left_s > kWarnS || now_s() - warned_s < kDayS) return;
  warned_s = now_s();
  const std::string ends = left_s > 0 ? "ends in " + std::to_string(left_s / 3600) + " hours" : "has ended";
  deps_.events.add("certificate-not-renewed",
                   "the certificate of " + of + " " + ends + " and was not renewed: " + error.to_string(),
                   node);
}

}  // namespace ckpt::coordinator
