// SPDX-License-Identifier: Apache-2.0
// The table of denied certificates: what it keeps, for how long, and what belongs to a node.
#include "coordinator/cluster/denied_certificates.h"

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
    denied_.emplace(DeniedCertificates::Parts{*store_, *events_, *nodes_, *calls_});
    denied_->at_change([this] { ++changes_; });
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
  // The PEM and the serial of a new certificate of that node.
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

TEST_F(DeniedCertificatesTest, DenialLastsOverARestartUntilItIsTakenBack) {
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

TEST_F(DeniedCertificatesTest, OpenConnectionsAreLookedAtAtEachChange) {
  const unsigned before = changes_;
  ASSERT_TRUE(denied_->deny("ab", entry()));
  EXPECT_EQ(changes_, before + 1);
  ASSERT_TRUE(denied_->allow("ab"));
  EXPECT_EQ(changes_, before + 2);
}

TEST_F(DeniedCertificatesTest, EntryLeavesOnceItsCertificateHasEnded) {
  constexpr std::int64_t kDayS = 24 * 3600;
  ASSERT_TRUE(denied_->deny("ab", entry(now_s() + kDayS)));
  ASSERT_TRUE(denied_->deny("cd", entry()));
  ASSERT_TRUE(denied_->forget_ended(now_s() + kDayS));
  EXPECT_TRUE(is_denied("ab")) << "a node's clock may be behind";
  ASSERT_TRUE(denied_->forget_ended(now_s() + 3 * kDayS));
  EXPECT_FALSE(is_denied("ab"));
  EXPECT_TRUE(is_denied("cd")) << "its end is not known";
  reopen();
  EXPECT_EQ(denied_->all().size(), 1U);
  EXPECT_EQ(denied_->deny("ab", entry(1)).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(DeniedCertificatesTest, ListIsBounded) {
  static_assert(tls::DeniedSerials::kMax == 4096);
  ASSERT_TRUE(store_->database().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096) "
      "INSERT INTO denied_certificates SELECT i, '', '', '', 0, 0 FROM n"));
  reopen();
  EXPECT_EQ(denied_->deny("abcdef", entry()).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(denied_->deny("1", entry()));
  EXPECT_FALSE(is_denied("abcdef"));
}

TEST_F(DeniedCertificatesTest, OwnCertificateIsNotDenied) {
  EXPECT_EQ(denied_->deny(own_->subject().serial, entry()).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(denied_->all().empty());
}

TEST_F(DeniedCertificatesTest, AllThatARemovedNodeWasGivenIsDeniedAndNothingOfOthers) {
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
  // It may come back, and is removed again.
  ASSERT_TRUE(denied_->allow_node("a"));
  EXPECT_FALSE(is_denied(first_serial));
  ASSERT_TRUE(denied_->deny_node("a"));
  EXPECT_TRUE(is_denied(second_serial));
  // What it was given since stays good.
  const auto [third, third_serial] = certificate_of("a");
  ASSERT_TRUE(denied_->issued("a", third));
  EXPECT_FALSE(is_denied(third_serial));
  EXPECT_TRUE(is_denied(first_serial));
}

}  // namespace
}  // namespace ckpt::coordinator
