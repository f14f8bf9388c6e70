// SPDX-License-Identifier: Apache-2.0
// Tests of the table of denied certificates: its content, how long entries are kept, and which entries belong
// to a node.
#include "coordinator/certificates/denied_certificates.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "coordinator/state/store_sync.h"
#include "libckpt/base/clock.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::coordinator {
namespace {

class DeniedCertificatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/deniedXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    denied_.reset();
    calls_.reset();
    nodes_.reset();
    events_.reset();
    sync_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    sync_.emplace(*store_, folder_ + "/state.db", io_.get_executor());
    events_.emplace(*store_, io_.get_executor());
    nodes_.emplace(*store_);
    calls_.emplace(*nodes_, *sync_, frames_, io_.get_executor());
    denied_.emplace(DeniedCertificates::Dependencies{*store_, *events_, *nodes_, *calls_});
    denied_->list_changed().subscribe([this] { ++changes_; });
    ASSERT_TRUE(denied_->load(own_.get()));
  }
  static DeniedCertificates::Entry entry(std::int64_t ends_s = 0) {
    DeniedCertificates::Entry entry;
    entry.reason = "lost";
    entry.ends_s = ends_s;
    return entry;
  }
  [[nodiscard]] bool is_denied(const std::string& serial) const {
    return denied_->serials()->contains(serial);
  }
  // Returns the PEM and the serial of a new certificate of that node.
  std::pair<std::string, std::string> certificate_of(const std::string& node) {
    const auto issued =
        certificates_.authority().sign(tls::Certificates::order(tls::Peer::node(node))).value();
    const auto files = certificates_.write(node, issued);
    return {issued.certificate, tls::Identity::load(files).value()->subject().serial};
  }
  static std::int64_t now_s() { return wall_clock_ms() / 1000; }

  control::asio::io_context io_{1};
  tls::Certificates certificates_;
  std::shared_ptr<tls::Identity> own_ = certificates_.identity("coordinator", tls::Peer::coordinator());
  std::string folder_;
  unsigned changes_ = 0;
  NodeFrames frames_;
  std::optional<Store> store_;
  std::optional<StoreSync> sync_;
  std::optional<EventLog> events_;
  std::optional<NodeTable> nodes_;
  std::optional<NodeCalls> calls_;
  std::optional<DeniedCertificates> denied_;
};

TEST_F(DeniedCertificatesTest, DenialSurvivesARestartUntilItsWithdrawal) {
  ASSERT_TRUE(denied_->deny("ab", entry()));
  EXPECT_TRUE(is_denied("ab"));
  reopen();
  ASSERT_TRUE(is_denied("ab"));
  EXPECT_EQ(denied_->all().at("ab").reason, "lost");
  ASSERT_TRUE(denied_->allow("ab"));
  EXPECT_FALSE(is_denied("ab"));
  EXPECT_EQ(denied_->allow("ab").error().code(), ErrorCode::kNotFound);
  reopen();
  EXPECT_FALSE(is_denied("ab"));
}

TEST_F(DeniedCertificatesTest, EachChangeRechecksOpenConnections) {
  const unsigned before = changes_;
  ASSERT_TRUE(denied_->deny("ab", entry()));
  EXPECT_EQ(changes_, before + 1);
  ASSERT_TRUE(denied_->allow("ab"));
  EXPECT_EQ(changes_, before + 2);
}

TEST_F(DeniedCertificatesTest, EntryIsRemovedAfterItsCertificateExpires) {
  constexpr std::int64_t kDayS = 24 * 3600;
  ASSERT_TRUE(denied_->deny("ab", entry(now_s() + kDayS)));
  ASSERT_TRUE(denied_->deny("cd", entry()));
  ASSERT_TRUE(denied_->remove_ended(now_s() + kDayS));
  EXPECT_TRUE(is_denied("ab")) << "a node's clock may be behind";
  ASSERT_TRUE(denied_->remove_ended(now_s() + 3 * kDayS));
  EXPECT_FALSE(is_denied("ab"));
  EXPECT_TRUE(is_denied("cd")) << "its end is not known";
  reopen();
  EXPECT_EQ(denied_->all().size(), 1U);
  EXPECT_EQ(denied_->deny("ab", entry(1)).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(DeniedCertificatesTest, DenyListIsBounded) {
  static_assert(tls::DeniedSerials::kMax == 4096);
  ASSERT_TRUE(store_->database().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096) "
      "INSERT INTO denied_certificates SELECT i, '', '', '', 0, 0 FROM n"));
  reopen();
  EXPECT_EQ(denied_->deny("abcdef", entry()).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(denied_->deny("1", entry()));
  EXPECT_FALSE(is_denied("abcdef"));
}

TEST_F(DeniedCertificatesTest, OwnCertificateCannotBeDenied) {
  EXPECT_EQ(denied_->deny(own_->subject().serial, entry()).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(denied_->all().empty());
}

TEST_F(DeniedCertificatesTest, RenewalsOfADeniedCertificateAreDenied) {
  constexpr std::int64_t kDayS = 24 * 3600;
  const auto peer = [](const std::string& serial) {
    tls::Peer peer = tls::Peer::node("a");
    peer.serial = serial;
    peer.ends_s = now_s() + 5 * kDayS;
    return peer;
  };
  const auto [child, child_serial] = certificate_of("a");
  const auto [grandchild, grandchild_serial] = certificate_of("a");
  const auto [other, other_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", child, peer("5701e4")));
  ASSERT_TRUE(denied_->issued("a", grandchild, peer(child_serial)));
  ASSERT_TRUE(denied_->issued("a", other));
  reopen();
  ASSERT_TRUE(denied_->deny("5701e4", entry()));
  EXPECT_TRUE(is_denied(child_serial));
  EXPECT_TRUE(is_denied(grandchild_serial));
  EXPECT_FALSE(is_denied(other_serial));
  // The certificate's renewal was in progress when the certificate was denied.
  const auto [late, late_serial] = certificate_of("a");
  EXPECT_EQ(denied_->issued("a", late, peer(grandchild_serial)).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(is_denied(late_serial));
}

TEST_F(DeniedCertificatesTest, DenyingAnExpiredCertificateDeniesItsRenewals) {
  tls::Peer old = tls::Peer::node("a");
  old.serial = "01d";
  const auto [child, child_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", child, old));
  ASSERT_TRUE(denied_->deny("01d", entry(1))) << "it has ended, and lives on in another";
  EXPECT_TRUE(is_denied(child_serial));
  EXPECT_FALSE(is_denied("01d"));
}

TEST_F(DeniedCertificatesTest, CertificateIsRenewedOnceInTheLastThirdOfItsTerm) {
  constexpr std::int64_t kDayS = 24 * 3600;
  const std::int64_t now = now_s();
  tls::Peer shown = tls::Peer::node("a");
  shown.serial = "5701e4";
  shown.ends_s = now + 11 * kDayS;
  EXPECT_FALSE(denied_->renewed().is_due(shown, now).value());
  EXPECT_TRUE(denied_->renewed().is_due(shown, now + 2 * kDayS).value());
  const auto [child, child_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", child, shown));
  EXPECT_FALSE(denied_->renewed().is_due(shown, now + 3600).value());
  EXPECT_TRUE(denied_->renewed().is_due(shown, now + 2 * kDayS).value()) << "the node has not got it";
  ASSERT_TRUE(denied_->renewed().use(child_serial));
  EXPECT_FALSE(denied_->renewed().is_due(shown, now + 2 * kDayS).value());
  EXPECT_TRUE(denied_->renewed().is_due(shown, now + 21 * kDayS).value())
      << "that one ends, over the same connection";
  EXPECT_FALSE(denied_->renewed().is_due(tls::Peer::node("a"), now).value()) << "no certificate was shown";
}

TEST_F(DeniedCertificatesTest, DeniedNameAdmitsOnlyCertificatesIssuedAfterTheDenial) {
  const auto peer_of = [](const std::string& node, const std::string& serial) {
    tls::Peer peer = tls::Peer::node(node);
    peer.serial = serial;
    peer.ends_s = now_s() + 3600;
    return peer;
  };
  const auto [known, known_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", known));
  ASSERT_TRUE(denied_->deny_name("a", "stolen"));
  EXPECT_TRUE(is_denied(known_serial));
  EXPECT_FALSE(is_denied("ff11e"));
  EXPECT_FALSE(denied_->admit(peer_of("a", "ff11e"))) << "made where the coordinator does not see it";
  EXPECT_TRUE(is_denied("ff11e")) << "other nodes learn of it";
  EXPECT_TRUE(denied_->admit(peer_of("b", "bb")));
  const auto [next, next_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", next));
  reopen();
  EXPECT_TRUE(denied_->admit(peer_of("a", next_serial)));
  EXPECT_FALSE(denied_->admit(peer_of("a", "ff12e")));
  // Denying the name again also denies the new certificate.
  ASSERT_TRUE(denied_->deny_name("a", "again"));
  EXPECT_FALSE(denied_->admit(peer_of("a", next_serial)));
  ASSERT_TRUE(denied_->allow_name("a"));
  EXPECT_TRUE(denied_->admit(peer_of("a", "0ff13e")));
  EXPECT_EQ(denied_->allow_name("a").error().code(), ErrorCode::kNotFound);
}

TEST_F(DeniedCertificatesTest, AllCertificatesOfARemovedNodeAreDeniedAndNoOtherCertificate) {
  const auto [first, first_serial] = certificate_of("a");
  const auto [second, second_serial] = certificate_of("a");
  const auto [other, other_serial] = certificate_of("b");
  ASSERT_TRUE(denied_->issued("a", first));
  ASSERT_TRUE(denied_->issued("a", second));
  ASSERT_TRUE(denied_->issued("b", other));
  reopen();
  ASSERT_TRUE(denied_->deny_node("a"));
  EXPECT_TRUE(is_denied(first_serial));
  EXPECT_TRUE(is_denied(second_serial));
  EXPECT_FALSE(is_denied(other_serial));
  // The node is allowed again, and is then removed again.
  ASSERT_TRUE(denied_->allow_node("a"));
  EXPECT_FALSE(is_denied(first_serial));
  ASSERT_TRUE(denied_->deny_node("a"));
  EXPECT_TRUE(is_denied(second_serial));
  // A certificate that the node receives afterwards is valid.
  const auto [third, third_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", third));
  EXPECT_FALSE(is_denied(third_serial));
  EXPECT_TRUE(is_denied(first_serial));
}

}  // namespace
}  // namespace ckpt::coordinator
