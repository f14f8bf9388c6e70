// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/policy.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace ckpt::coordinator {
namespace {

class PolicyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/policyXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    policy_.reset();
    events_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    events_.emplace(*store_, io_.get_executor());
    policy_.emplace(*store_, *events_, io_.get_executor());
    ASSERT_TRUE(policy_->load());
    policy_->changed().subscribe([this] { ++wakes_; });
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
  std::optional<PolicyTable> policy_;
};

TEST_F(PolicyTest, PauseSurvivesARestart) {
  EXPECT_STREQ(policy_->evacuation_of("a"), "on");
  ASSERT_TRUE(policy_->pause("a", "driver"));
  reopen();
  EXPECT_TRUE(policy_->is_paused("a"));
  EXPECT_STREQ(policy_->evacuation_of("a"), "paused");
  EXPECT_STREQ(policy_->evacuation_of("b"), "on");
  ASSERT_TRUE(policy_->resume("a"));
  reopen();
  EXPECT_FALSE(policy_->is_paused("a"));
  EXPECT_TRUE(policy_->was_named("a"));  // node a's agent may not have been running at the resume
}

TEST_F(PolicyTest, AnOpenBreakerStaysOpenUntilTheReset) {
  ASSERT_TRUE(policy_->open_breaker("20 evacuations"));
  reopen();
  EXPECT_TRUE(policy_->breaker().open);
  EXPECT_EQ(policy_->breaker().reason, "20 evacuations");
  EXPECT_STREQ(policy_->evacuation_of("a"), "stopped");
  ASSERT_TRUE(policy_->reset_breaker());
  const std::int64_t forgiven = policy_->breaker().forgiven_ms;
  reopen();
  EXPECT_FALSE(policy_->breaker().open);
  EXPECT_EQ(policy_->breaker().forgiven_ms, forgiven);
  EXPECT_GT(forgiven, 0);
}

TEST_F(PolicyTest, OpenTimeOfTheBreakerSurvivesARestart) {
  ASSERT_TRUE(policy_->open_breaker("20 evacuations"));
  const std::int64_t since = policy_->breaker().since_ms;
  EXPECT_GT(since, 0);
  reopen();
  EXPECT_EQ(policy_->breaker().since_ms, since);
}

TEST_F(PolicyTest, ChangeToTheCurrentStateRecordsNoEvent) {
  ASSERT_TRUE(policy_->resume("a"));
  ASSERT_TRUE(policy_->reset_breaker());
  EXPECT_EQ(events(), 0U);
  ASSERT_TRUE(policy_->pause("a", "driver"));
  ASSERT_TRUE(policy_->pause("a", "driver"));
  EXPECT_EQ(events(), 1U);
  ASSERT_TRUE(policy_->resume("a"));
  EXPECT_FALSE(policy_->is_paused("a"));
  ASSERT_TRUE(policy_->resume("a"));
  EXPECT_EQ(events(), 2U);
}

TEST_F(PolicyTest, EveryChangeNotifiesTheObserver) {
  ASSERT_TRUE(policy_->pause("a", ""));
  EXPECT_EQ(wakes_, 1U);
  ASSERT_TRUE(policy_->resume("a"));
  EXPECT_EQ(wakes_, 2U);
  ASSERT_TRUE(policy_->open_breaker("20 evacuations"));
  EXPECT_EQ(wakes_, 3U);
  ASSERT_TRUE(policy_->reset_breaker());
  EXPECT_EQ(wakes_, 4U);
}

TEST_F(PolicyTest, APausedNodeStaysPausedWhileTheBreakerIsOpen) {
  ASSERT_TRUE(policy_->pause("a", ""));
  ASSERT_TRUE(policy_->open_breaker("20 evacuations"));
  EXPECT_STREQ(policy_->evacuation_of("a"), "paused");
  EXPECT_STREQ(policy_->evacuation_of("b"), "stopped");
}

// A breaker that cannot be read must not count as closed.
TEST_F(PolicyTest, AnUndecodableBreakerStateIsAnError) {
  ASSERT_TRUE(policy_->open_breaker("20 evacuations"));
  for (const char* value : {"{", "{}", R"({"open":1,"since_ms":0,"reason":"","forgiven_ms":0})"}) {
    ASSERT_TRUE(store_->database().execute(
        (std::string("UPDATE health_policy SET value = '") + value + "' WHERE key = 'breaker'").c_str()));
    PolicyTable again(*store_, *events_, io_.get_executor());
    const auto loaded = again.load();
    ASSERT_FALSE(loaded) << value;
    EXPECT_EQ(loaded.error().code(), ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace ckpt::coordinator
