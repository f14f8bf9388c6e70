// SPDX-License-Identifier: Apache-2.0
// Tests of the renewal of a node's certificate, ordered by a coordinator that the test plays. The test is the
// authority.
#include "agent/coordinator_link/certificate_renewal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "libckpt/net/ca/request.h"
#include "tests/unit/agent/coordinator_link/linked_agent.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::agent {
namespace {

class CertificateRenewalTest : public LinkedAgent {
 protected:
  CertificateRenewalTest() {
    files_ = certificates_.write("node", order_for("node-a", tls::kNodeTerm));
    identity_ = tls::Identity::load(files_).value();
    commands_.certificate_end = [this] { return identity_->expires_unix_s(); };
    renewal_.emplace(*link_, *identity_, pool_, io_.get_executor());
    connect();
  }
  static tls::Authority::Order order_for(const std::string& node, std::chrono::seconds term) {
    auto order = tls::Certificates::order(tls::Peer::node(node));
    order.hosts = {"10.0.0.7", "node-a.example"};
    order.term = term;
    return order;
  }
  void send_ask(std::uint64_t request) {
    wire::AskForKey ask;
    ask.request_id = request;
    coordinator_->send(ask);
  }
  wire::KeyMade ask(std::uint64_t request) {
    send_ask(request);
    return coordinator_->receive<wire::KeyMade>("the request for a certificate");
  }
  [[nodiscard]] std::string certify(const wire::KeyMade& made, const std::string& node = "node-a") const {
    return certificates_.authority()
        .certify(made.signing_request, order_for(node, 2 * tls::kNodeTerm))
        .value();
  }
  void send_use(std::uint64_t request, const std::string& certificate) {
    wire::UseCertificate use;
    use.request_id = request;
    use.certificate = certificate;
    coordinator_->send(use);
  }
  // Expects success: an inventory with the certificate's expiry, then the answer.
  void expect_used(std::uint64_t request, const std::string& certificate) {
    const std::int64_t before = identity_->expires_unix_s();
    send_use(request, certificate);
    const auto report = coordinator_->receive<wire::Inventory>("the inventory with the certificate's end");
    EXPECT_GT(report.inventory.certificate_ends_s, before);
    const auto reply = coordinator_->receive<wire::Reply>("the answer to the certificate");
    EXPECT_EQ(reply.request_id, request);
    EXPECT_TRUE(reply.ok) << reply.message;
    EXPECT_EQ(text_of(files_.certificate), certificate);
    EXPECT_EQ(tls::peer_with_key(text_of(files_.certificate), text_of(files_.key)).value(),
              tls::Peer::node("node-a"));
  }
  void expect_refused(std::uint64_t request, const std::string& certificate) {
    const std::string before = text_of(files_.certificate) + text_of(files_.key);
    send_use(request, certificate);
    const auto reply = coordinator_->receive<wire::Reply>("the refusal of the certificate");
    EXPECT_EQ(reply.request_id, request);
    EXPECT_FALSE(reply.ok);
    EXPECT_EQ(text_of(files_.certificate) + text_of(files_.key), before);
  }
  static std::string text_of(const std::string& path) { return read_file(path, tls::kMaxPemBytes).value(); }

  tls::Certificates certificates_;
  tls::CertFiles files_;
  std::shared_ptr<tls::Identity> identity_;
  std::optional<CertificateRenewal> renewal_;
  asio::thread_pool pool_{1};
};

TEST_F(CertificateRenewalTest, NewCertificateIsStoredAndInUseBeforeTheReply) {
  const auto made = ask(1);
  EXPECT_EQ(made.request_id, 1U);
  EXPECT_EQ(made.signing_request.find("PRIVATE KEY"), std::string::npos);
  expect_used(2, certify(made));
}

TEST_F(CertificateRenewalTest, SigningRequestContainsTheAddressesOfTheCurrentCertificate) {
  EXPECT_THAT(tls::addresses_of_request(ask(1).signing_request).value(), testing::ElementsAre("10.0.0.7"));
}

TEST_F(CertificateRenewalTest, CertificateOfAnotherNodeIsRefused) {
  expect_refused(2, certify(ask(1), "node-b"));
}

TEST_F(CertificateRenewalTest, TextThatIsNotACertificateIsRefused) {
  ask(1);
  expect_refused(2, "-----BEGIN CERTIFICATE-----\n");
}

TEST_F(CertificateRenewalTest, RepeatedCertificateIsRefusedBecauseItsKeyIsInUse) {
  const std::string certificate = certify(ask(1));
  expect_used(2, certificate);
  expect_refused(3, certificate);
}

TEST_F(CertificateRenewalTest, ConcurrentRequestsAreAllAnsweredAndTheLastKeyIsUsed) {
  send_ask(1);
  send_ask(2);
  const auto first = coordinator_->receive<wire::KeyMade>("the answer to the first request");
  const auto last = coordinator_->receive<wire::KeyMade>("the answer to the last request");
  EXPECT_EQ(first.request_id, 1U);
  EXPECT_EQ(last.request_id, 2U);
  expect_used(3, certify(last));
}

TEST_F(CertificateRenewalTest, CertificateOfAnEarlierKeyIsRefused) {
  const auto earlier = ask(1);
  ask(2);
  expect_refused(3, certify(earlier));
}

TEST_F(CertificateRenewalTest, KeyIsKeptForItsCertificateWhileTheCoordinatorIsDisconnected) {
  const auto made = ask(1);
  coordinator_->hang_up();
  take_hello(2);
  expect_used(2, certify(made));
}

TEST_F(CertificateRenewalTest, KeyRequestFailsIfTheCertificateFileIsMissing) {
  std::filesystem::remove(files_.certificate);
  send_ask(1);
  const auto reply = coordinator_->receive<wire::Reply>("the reason why there is no key");
  EXPECT_EQ(reply.request_id, 1U);
  EXPECT_EQ(reply.to_error().code(), ErrorCode::kNotFound);
}

TEST_F(CertificateRenewalTest, FolderThatIsNotWritableFailsTheRenewalAndKeepsTheOldIdentity) {
  const std::string certificate = certify(ask(1));
  const std::int64_t end = identity_->expires_unix_s();
  std::filesystem::create_directory(files_.key + ".new");  // the new key's path is occupied
  send_use(2, certificate);
  const auto reply = coordinator_->receive<wire::Reply>("the failure to write");
  EXPECT_FALSE(reply.ok);
  EXPECT_EQ(identity_->expires_unix_s(), end);
  EXPECT_NE(text_of(files_.certificate), certificate);
}

}  // namespace
}  // namespace ckpt::agent
