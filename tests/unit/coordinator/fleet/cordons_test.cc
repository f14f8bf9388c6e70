// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/cordons.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace ckpt::coordinator {
namespace {

const Scope kNode("a", std::nullopt);
const Scope kGpu("a", 1);

class CordonTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/cordonsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    cordons_.reset();
    events_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    events_.emplace(*store_, io_.get_executor());
    cordons_.emplace(*store_, *events_, io_.get_executor());
    ASSERT_TRUE(cordons_->load());
    cordons_->changed().subscribe([this] { ++wakes_; });
  }
  std::size_t events() {
    EventQuery all;
    all.limit = 100;
    return events_->find(all).value().size();
  }

  control::asio::io_context io_{1};
  std::string folder_;
  unsigned wakes_ = 0;
  std::optional<Store> store_;
  std::optional<EventLog> events_;
  std::optional<CordonTable> cordons_;
};

TEST_F(CordonTableTest, CordonSurvivesARestart) {
  ASSERT_TRUE(cordons_->set(kGpu, CordonOwner::kHealth, "Xid 79"));
  const std::int64_t since = cordons_->all().at(0).since_ms;
  reopen();
  ASSERT_EQ(cordons_->all().size(), 1U);
  EXPECT_EQ(cordons_->all().at(0).since_ms, since);
  EXPECT_EQ(cordons_->why_closed(Place("a", 1)), "cordoned by health: Xid 79");
  EXPECT_EQ(cordons_->why_closed(Place("a", 0)), "");
}

TEST_F(CordonTableTest, RepeatedCordonChangesOnlyTheReason) {
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  const std::int64_t since = cordons_->all().at(0).since_ms;
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, ""));
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  EXPECT_EQ(events(), 1U);
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "fan"));
  ASSERT_EQ(cordons_->all().size(), 1U);
  EXPECT_EQ(cordons_->all().at(0).reason, "fan");
  EXPECT_EQ(cordons_->all().at(0).since_ms, since);
}

TEST_F(CordonTableTest, CordonOfAWholeNodeSurvivesARestart) {
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  reopen();
  EXPECT_EQ(cordons_->all().at(0).scope, kNode);
  EXPECT_EQ(cordons_->why_closed(Place("a", 7)), "cordoned by operator: driver");
}

// The cordon was set a day ago, according to the store. An existing time is retained, without reading the
// clock.
TEST_F(CordonTableTest, NewReasonKeepsTheTimeOfTheCordon) {
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  ASSERT_TRUE(store_->database().execute("UPDATE cordons SET since_ms = 5"));
  reopen();
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "fan"));
  EXPECT_EQ(cordons_->all().at(0).since_ms, 5);
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, ""));
  EXPECT_EQ(cordons_->all().at(0).reason, "fan");
  reopen();
  EXPECT_EQ(cordons_->all().at(0).since_ms, 5);
  EXPECT_EQ(cordons_->all().at(0).reason, "fan");
}

TEST_F(CordonTableTest, OnlyChangesNotifyTheObserver) {
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  EXPECT_EQ(wakes_, 1U);
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "driver"));
  EXPECT_EQ(wakes_, 1U);
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, "fan"));
  EXPECT_EQ(wakes_, 2U);
  ASSERT_TRUE(cordons_->clear(kNode));
  EXPECT_EQ(wakes_, 3U);
  ASSERT_TRUE(cordons_->clear(kNode));
  EXPECT_EQ(wakes_, 3U);
}

TEST_F(CordonTableTest, CordonsAreFoundByOwnerAndByNode) {
  ASSERT_TRUE(cordons_->set(kGpu, CordonOwner::kHealth, "Xid 79"));
  ASSERT_TRUE(cordons_->set(Scope("b", 1), CordonOwner::kOperator, "fan"));
  EXPECT_EQ(cordons_->find(kGpu, CordonOwner::kOperator), nullptr);
  ASSERT_NE(cordons_->find(kGpu, CordonOwner::kHealth), nullptr);
  EXPECT_EQ(cordons_->find(kNode, CordonOwner::kHealth), nullptr);
  ASSERT_EQ(cordons_->of_node("a").size(), 1U);
  EXPECT_EQ(cordons_->of_node("a").at(0).reason, "Xid 79");
}

TEST_F(CordonTableTest, CordonsOfDifferentOwnersCoexist) {
  ASSERT_TRUE(cordons_->set(kGpu, CordonOwner::kOperator, "fan"));
  ASSERT_TRUE(cordons_->set(kGpu, CordonOwner::kHealth, "Xid 79"));
  EXPECT_EQ(cordons_->why_closed(Place("a", 1)), "cordoned by operator: fan; cordoned by health: Xid 79");
  const auto cleared = cordons_->clear(kGpu);
  ASSERT_TRUE(cleared);
  EXPECT_EQ(cleared.value().size(), 2U);  // both cordons are cleared, and both are reported
  EXPECT_EQ(events(), 4U);
  reopen();
  EXPECT_TRUE(cordons_->all().empty());
}

TEST_F(CordonTableTest, CordonOfAGpuOutlivesTheCordonOfItsNode) {
  ASSERT_TRUE(cordons_->set(kNode, CordonOwner::kOperator, ""));
  ASSERT_TRUE(cordons_->set(kGpu, CordonOwner::kHealth, "Xid 79"));
  EXPECT_EQ(cordons_->over(Place("a", 1)).size(), 2U);
  EXPECT_EQ(cordons_->clear(kNode).value().size(), 1U);
  EXPECT_EQ(cordons_->why_closed(Place("a", 0)), "");
  EXPECT_EQ(cordons_->why_closed(Place("a", 1)), "cordoned by health: Xid 79");
  EXPECT_TRUE(cordons_->clear(kNode).value().empty());
  reopen();
  EXPECT_EQ(cordons_->why_closed(Place("a", 0)), "");
  EXPECT_EQ(cordons_->why_closed(Place("a", 1)), "cordoned by health: Xid 79");
}

}  // namespace
}  // namespace ckpt::coordinator
