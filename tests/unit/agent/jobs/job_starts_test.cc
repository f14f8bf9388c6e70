// SPDX-License-Identifier: Apache-2.0
// Orders to start one instance that arrive closely together, and repeated orders.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/jobs/gang_rendezvous.h"
#include "agent/jobs/job_table.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"
#include "tests/unit/agent/support/awaited.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

using Started = Result<std::shared_ptr<Job>>;

// A node whose keepers exit at once. The check of an order lasts until the test ends the check.
class JobStartsTest : public NodeOfJobs {
 protected:
  void SetUp() override {
    const std::string keeper = home_ / "keeper";
    std::ofstream(keeper) << "#!/bin/sh\necho '{\"state\":\"exited\",\"exit_code\":4}' > $2/status.json\n";
    std::filesystem::permissions(keeper, std::filesystem::perms::owner_all);
    environment_->keeper_program = keeper;
    table_.emplace(*environment_);
  }
  Running<Started> order(const std::string& what) {
    const JobTable::Prepare check = [this](JobRecord& /*record*/) -> Task<Result<void>> {
      ++checks_;
      co_await go_on_.wait(std::chrono::steady_clock::time_point::max());
      co_return outcome_;
    };
    return {io_, what, table_->start(new_record(), std::nullopt, check)};
  }
  Running<Result<void>> stop() { return {io_, "the stop", table_->stop(1, 1, Milliseconds(0))}; }

  std::optional<JobTable> table_;
  AsyncEvent go_on_{io_.get_executor()};
  Result<void> outcome_ = ok();
  int checks_ = 0;
};

TEST_F(JobStartsTest, TwoOrdersForOneInstanceStartTheInstanceOnce) {
  auto first = order("the first order");
  auto second = order("the second order");
  EXPECT_EQ(checks_, 1) << "the second order must wait for the first one, also during its check";
  go_on_.notify();
  const auto started = first.result();
  ASSERT_TRUE(started) << started.error().to_string();
  const auto repeated = second.result();
  ASSERT_TRUE(repeated) << repeated.error().to_string();
  EXPECT_EQ(*repeated, *started);
  EXPECT_EQ(checks_, 1);
  EXPECT_EQ(table_->all().size(), 1U);
}

TEST_F(JobStartsTest, StopWaitsForAnOrderThatIsStillChecked) {
  auto start = order("the order");
  auto stopped = stop();
  EXPECT_FALSE(stopped.done()) << "the job would start after the answer that it has no instance";
  go_on_.notify();
  EXPECT_TRUE(start.result());
  EXPECT_TRUE(stopped.result());
}

TEST_F(JobStartsTest, FailedCheckReleasesTheInstance) {
  outcome_ = Error(ErrorCode::kRefused, "no");
  auto first = order("the first order");
  auto second = order("the second order");
  go_on_.notify();
  EXPECT_EQ(first.result().error().code(), ErrorCode::kRefused);
  await_event(io_, "the second order is checked", [this] { return checks_ == 2; });
  outcome_ = ok();
  go_on_.notify();
  EXPECT_TRUE(second.result());
  EXPECT_EQ(table_->all().size(), 1U);
}

TEST_F(JobStartsTest, FailedCheckLeavesNothingToStop) {
  outcome_ = Error(ErrorCode::kRefused, "no");
  auto start = order("the order");
  go_on_.notify();
  EXPECT_FALSE(start.result());
  EXPECT_EQ(stop().result().error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(instance_folder(config_.jobs_folder(), 1, 1)));
}

JobRecord rank_with(std::vector<std::string> environment) {
  JobRecord record;
  record.spec.job = record.spec.incarnation = record.incarnation = 1;
  record.spec.ranks.emplace_back();
  record.spec.gang.id = 7;
  record.spec.gang.ranks = 2;
  record.spec.env = std::move(environment);
  return record;
}

// The coordinator learns the port that the node has added only later. It may repeat its order without it.
TEST_F(JobStartsTest, RepeatedOrderReturnsTheRankWithItsChosenPort) {
  leave_instance(rank_with({"A=b", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711"}));
  ASSERT_TRUE(run_until_done(io_, table_->rediscover()));
  const auto there = table_->started_as(1, 1);
  ASSERT_TRUE(there);
  for (const auto& environment : {std::vector<std::string>{"A=b"}, {"A=b", "MASTER_PORT=4711"}}) {
    const auto repeated = run_until_done(io_, table_->start(rank_with(environment)));
    ASSERT_TRUE(repeated) << repeated.error().to_string();
    EXPECT_EQ(*repeated, there);
  }
  for (const auto& environment : {std::vector<std::string>{"A=c"}, {"A=b", "MASTER_PORT=4712"}}) {
    const auto refused = run_until_done(io_, table_->start(rank_with(environment)));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  }
}

TEST(Rendezvous, RankGetsTheVariablesThatItsOrderLacks) {
  wire::JobSpec rank = rank_with({"MASTER_ADDR=10.0.0.1"}).spec;
  ASSERT_TRUE(add_rendezvous(rank));
  ASSERT_EQ(rank.env.size(), 2U);
  EXPECT_EQ(rank.env.front(), "MASTER_ADDR=10.0.0.1");
  EXPECT_TRUE(rank.env.back().starts_with("MASTER_PORT="));
  EXPECT_NE(rank.env.back(), "MASTER_PORT=0");
  const auto complete = rank.env;
  ASSERT_TRUE(add_rendezvous(rank));
  EXPECT_EQ(rank.env, complete);
  wire::JobSpec alone = rank_with({"A=b"}).spec;
  alone.gang = {};
  ASSERT_TRUE(add_rendezvous(alone));
  EXPECT_EQ(alone.env, std::vector<std::string>{"A=b"}) << "it meets nobody";
}

TEST(OneRank, AnyNumberOfRanksExceptOneIsRefused) {
  std::vector<wire::RankSpec> ranks;
  EXPECT_EQ(only_rank(ranks).error().code(), ErrorCode::kNotSupported);
  ranks.emplace_back().gpu_index = 3;
  ASSERT_TRUE(only_rank(ranks));
  EXPECT_EQ(only_rank(ranks)->gpu_index, 3U);
  ranks.emplace_back();
  EXPECT_EQ(only_rank(ranks).error().code(), ErrorCode::kNotSupported);
}

TEST(OneRank, RecordWithoutARankIsDamaged) {
  const TemporaryFolder folder;
  JobRecord record = rank_with({});
  record.spec.ranks.clear();
  ASSERT_TRUE(write_job_record(folder.path(), record));
  EXPECT_EQ(read_job_record(folder.path()).error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckpt::agent
