// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/certificate_renewal.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {
namespace {

Result<void> check_is_for(const tls::Peer& subject, const std::string& certificate, const std::string& key) {
  CKPT_TRY(named, tls::peer_with_key(certificate, key));
  if (named == subject) return ok();
  return Error(ErrorCode::kRefused,
               "The new certificate is that of " + to_text(named) + ", not of " + to_text(subject));
}

// Creates a signing request for the addresses of the current certificate.
Result<tls::SigningRequest> make_request(const tls::CertFiles& files) {
  CKPT_TRY(certificate, read_file(files.certificate, tls::kMaxPemBytes));
  CKPT_TRY(hosts, tls::hosts_of(certificate));
  std::erase_if(hosts, [](const std::string& host) {
    boost::system::error_code code;
    (void)control::asio::ip::make_address(host, code);
    return static_cast<bool>(code);
  });
  return tls::make_signing_request(hosts);
}

}  // namespace

CertificateRenewal::CertificateRenewal(CoordinatorLink& link, tls::Identity& identity,
                                       control::asio::thread_pool& pool,
                                       control::asio::any_io_executor executor)
    : link_(link), identity_(identity), pool_(pool), executor_(std::move(executor)) {
  link_.subscribe(wire::FrameType::kAskForKey, [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<wire::AskForKey>(body));
    control::spawn(executor_, "make a key", make_key(std::move(request)));
    return ok();
  });
  link_.subscribe(wire::FrameType::kUseCertificate, [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<wire::UseCertificate>(body));
    control::spawn(executor_, "use a certificate", use(std::move(request)));
    return ok();
  });
}

control::Task<> CertificateRenewal::make_key(wire::AskForKey request) {
  auto make = [files = identity_.files()] { return make_request(files); };
  auto made = co_await control::offload(pool_, make);
  if (!made) {
    link_.reply(request.request_id, made.error());
    co_return;
  }
  key_ = std::move(made->key);
  wire::KeyMade answer;
  answer.request_id = request.request_id;
  answer.signing_request = std::move(made->request);
  link_.send(answer);
}

control::Task<> CertificateRenewal::use(wire::UseCertificate request) {
  const std::string key = std::exchange(key_, {});
  auto write = [key, certificate = std::move(request.certificate), files = identity_.files(),
                subject = identity_.subject()]() -> Result<void> {
    CKPT_TRYV(check_is_for(subject, certificate, key));
    return tls::replace_pair(files.certificate, certificate, files.key, key);
  };
  const auto written = co_await control::offload(pool_, std::move(write));
  if (written) {
    identity_.refresh();
    spdlog::info("certificate renewed: file {}", identity_.files().certificate);
    link_.send_inventory();  // sends the inventory, because it contains the new certificate's expiry
  }
  link_.reply(request.request_id, written);
}

}  // namespace ckpt::agent
