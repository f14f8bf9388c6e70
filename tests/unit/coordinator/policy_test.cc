// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policy.h"

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
  }

  control::asio::io_context io_{1};
  std::string folder_;
  std::optional<Store> store_;
  std::optional<EventLog> events_;
  std::optional<PolicyTable> policy_;
};

TEST_F(PolicyTest, PausesLastOverARestart) {
  EXPECT_STREQ(policy_->evacuation_of("a"), "on");
  ASSERT_TRUE(policy_->pause("a", "driver"));
  reopen();
  EXPECT_TRUE(policy_->is_paused("a"));
  EXPECT_STREQ(policy_->evacuation_of("a"), "paused");
  EXPECT_STREQ(policy_->evacuation_of("b"), "on");
  ASSERT_TRUE(policy_->resume("a"));
  reopen();
  EXPECT_FALSE(policy_->is_paused("a"));
  EXPECT_TRUE(policy_->was_named("a"));  // its agent may have slept through the resume
}

TEST_F(PolicyTest, AnOpenBreakerStaysOpenUntilItIsReset) {
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

}  // namespace
}  // namespace ckpt::coordinator
