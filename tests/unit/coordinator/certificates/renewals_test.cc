// SPDX-License-Identifier: Apache-2.0
// Tests of the renewal of nodes' certificates over real connections. The coordinator relies on the identity
// that a connection has proven, not on a node's claim.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/protocol/wire/certificate_messages.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::coordinator::test {
namespace {

class RenewalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        write_file_durably(certificates_.path("ca.key"), certificates_.authority().pem().value().key));
    Config& config = cluster_.config();
    tls::Authority::Order order = tls::Certificates::order(tls::Peer::coordinator());
    order.term = tls::kCoordinatorTerm;  // the coordinator's own certificate is not due
    config.tls = certificates_.write("coordinator", order);
    config.certificate_authority = certificates_.path("");
    config.agent_address = "127.0.0.1:0";
    config.certificate_check_ms = 10;
    cluster_.start();
  }
  // Returns a node whose certificate is valid for `left`, and which claims `claimed_end_s` as the
  // certificate's expiry.
  std::unique_ptr<FakeAgent> agent(const std::string& node, std::chrono::hours left,
                                   std::int64_t claimed_end_s) {
    tls::Authority::Order order = tls::Certificates::order(tls::Peer::node(node));
    order.term = left;
    const std::string files = node + std::to_string(made_++);
    const auto identity = tls::Identity::load(certificates_.write(files, order)).value();
    serials_[node] = identity->subject().serial;
    const std::string address = cluster_.get("/v1/status").json()["agent_address"];
    auto made = std::make_unique<FakeAgent>(node, address, cluster_.agent_token(), identity);
    made->inventory.certificate_ends_s = claimed_end_s;
    made->on_other = [this, node, raw = made.get()](const wire::FrameHeader& header,
                                                    std::span<const std::byte> body) {
      if (header.type == wire::FrameType::kAskForKey) {
        wire::KeyMade made_key;
        made_key.request_id = wire::decode<wire::AskForKey>(body).value().request_id;
        made_key.signing_request = tls::make_signing_request().value().request;
        raw->send(made_key);
      } else if (header.type == wire::FrameType::kUseCertificate) {
        const auto use = wire::decode<wire::UseCertificate>(body).value();
        const auto given = tls::certificate_of(use.certificate).value();
        {
          const std::lock_guard lock(mutex_);
          given_[node].push_back(tls::serial_of(given.get()));
        }
        wire::Reply reply;
        reply.request_id = use.request_id;
        raw->send(reply);
      }
    };
    return made;
  }
  std::vector<std::string> given(const std::string& node) {
    const std::lock_guard lock(mutex_);
    return given_[node];
  }
  bool is_denied(const std::string& serial) {
    const auto list = cluster_.get("/v1/certificates/denied").json();
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& entry) { return entry["serial"] == serial; });
  }

  tls::Certificates certificates_;
  Cluster cluster_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> given_;
  std::map<std::string, std::string> serials_;  // the serial of each node's last certificate
  unsigned made_ = 0;
};

TEST_F(RenewalsTest, RenewalDependsOnTheCertificateAndNotOnTheReportedExpiry) {
  const std::int64_t over = wall_clock_ms() / 1000 + 60;
  auto liar = agent("liar", 29 * tls::kDay, over);
  auto honest = agent("honest", 5 * tls::kDay, over + 3600 * 24 * 29);
  liar->start();
  cluster_.wait_for_event("node-ready");
  honest->start();
  // All nodes are checked together. The other nodes of a check are done before the end of this node's
  // renewal.
  cluster_.wait_for_event("certificate-renewed");
  EXPECT_EQ(given("liar").size(), 0U);
  EXPECT_EQ(given("honest").size(), 1U);
  // Another node becomes due and gets a new certificate. The same check has also covered the first node
  // again.
  auto later = agent("later", 5 * tls::kDay, 0);
  later->start();
  cluster_.wait_for_event("certificate-renewed", 2);
  EXPECT_EQ(given("honest").size(), 1U);
  EXPECT_EQ(given("liar").size(), 0U);
}

TEST_F(RenewalsTest, DenyingACertificateDeniesItsRenewals) {
  auto stolen = agent("stolen", 5 * tls::kDay, 0);
  stolen->start();
  cluster_.wait_for_event("certificate-renewed");
  const auto children = given("stolen");
  ASSERT_EQ(children.size(), 1U);
  const auto answer = cluster_.post("/v1/certificates/deny", R"({"serial":")" + serials_["stolen"] + "\"}");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_TRUE(is_denied(children[0]));
  cluster_.wait_for_event("node-lost");  // the coordinator closed the node's connection
}

TEST_F(RenewalsTest, DeniedNameIsRefusedUntilAllowed) {
  auto node = agent("gone", 29 * tls::kDay, 0);
  node->start();
  cluster_.wait_for_event("node-ready");
  ASSERT_EQ(cluster_.post("/v1/certificates/deny", R"({"node":"gone","reason":"stolen"})").status, 200U);
  EXPECT_TRUE(is_denied(serials_["gone"]));
  cluster_.wait_for_event("node-lost");
  // Another certificate of the same name is issued elsewhere with the authority's key. It is refused, and
  // denied when it is presented.
  auto other = agent("gone", 29 * tls::kDay, 0);
  other->start();
  cluster_.wait_for_event("certificate-denied", 2);
  EXPECT_TRUE(is_denied(serials_["gone"]));
  ASSERT_EQ(cluster_.post("/v1/certificates/allow", R"({"node":"gone"})").status, 200U);
  auto third = agent("gone", 29 * tls::kDay, 0);
  third->start();
  cluster_.wait_for_event("node-ready", 2);
}

}  // namespace
}  // namespace ckpt::coordinator::test
