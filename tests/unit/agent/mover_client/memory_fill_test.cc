// SPDX-License-Identifier: Apache-2.0
// Memory that a rank makes and a mover fills. The test plays the rank's keeper and the mover.
#include "agent/mover_client/memory_fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kFilledBytes = 4096;
constexpr wire::MigrationId kFillMigration = 9;

std::vector<UniqueFd> files(std::size_t count) {
  std::vector<UniqueFd> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(make_memory_file("region", kFilledBytes).value());
  return out;
}

ino_t file_number(const UniqueFd& fd) {
  struct stat facts {};
  EXPECT_EQ(::fstat(fd.get(), &facts), 0);
  return facts.st_ino;
}

class MemoryFillTest : public AgentWithMovers {
 protected:
  using Fill = Running<Result<void>>;
  void SetUp() override {
    mover_ = serve();
    keeper_.emplace(io_, folder_.path());
    link_ = KeeperLink::connect(io_.get_executor(), folder_ / "keeper.sock", Milliseconds(60000), {}).value();
  }
  void TearDown() override { link_->close(); }
  Fill fill(Milliseconds timeout = Milliseconds(60000)) {
    FillOrder order(link_, process_);
    order.migration = kFillMigration;
    order.timeout = timeout;
    return {io_, "fill_memory()", fill_memory(io_.get_executor(), std::move(order))};
  }
  // Answers the next query for a part of the set with one region.
  void hold(std::uint64_t from, std::uint64_t region) {
    const auto fetch = keeper_->receive<local::Fetch>("the question for a part of the set");
    EXPECT_EQ(fetch.body.from, from);
    EXPECT_EQ(fetch.body.migration, kFillMigration);
    local::Held held;
    held.sequence = from + 1;
    held.records.push_back({region, 1, kFilledBytes, {}});
    auto memory = files(1);
    old_ = file_number(memory.front());
    keeper_->answer(fetch.request, held, std::move(memory));
  }
  void hold_no_more() {
    keeper_->answer(keeper_->receive<local::Fetch>("the question for the rest of the set").request,
                    local::Done{});
  }
  // Answers the order to create memory with the requested region, or with `region`.
  void make(std::uint64_t region) {
    const auto order = keeper_->receive<local::Make>("the order to make memory");
    local::Made made;
    made.sequence = order.body.sequence;
    made.records.push_back({region, 1, kFilledBytes, {}});
    auto memory = files(1);
    new_ = file_number(memory.front());
    keeper_->answer(order.request, made, std::move(memory));
  }
  mover::FillRegions receive_fill() {
    std::vector<UniqueFd> descriptors;
    auto order = mover_->receive<mover::FillRegions>("the order to fill", &descriptors);
    EXPECT_EQ(descriptors.size(), 2U);
    if (descriptors.size() != 2) return order;
    EXPECT_EQ(file_number(descriptors[0]), old_) << "the content comes first";
    EXPECT_EQ(file_number(descriptors[1]), new_);
    return order;
  }
  void report_filled(const mover::FillRegions& order, std::uint64_t batch) {
    mover::Filled filled;
    filled.session = order.session;
    filled.batch = batch;
    filled.bytes = kFilledBytes;
    mover_->send(filled);
  }
  Order<local::Replace> receive_replace() {
    return keeper_->receive<local::Replace>("the set gets the new memory");
  }

  std::unique_ptr<FakeMover> mover_;
  std::optional<PlayedKeeper> keeper_;
  std::shared_ptr<KeeperLink> link_;
  ino_t old_ = 0;
  ino_t new_ = 0;
};

// Memory that the mover has not compared never replaces the old memory, because the set must stay complete.
TEST_F(MemoryFillTest, SetReceivesTheNewMemoryOnceTheMoverHasFilledIt) {
  auto fills = fill();
  hold(0, 11);
  make(11);
  const auto order = receive_fill();
  EXPECT_EQ(order.regions.front().id, 11U);
  EXPECT_FALSE(keeper_->is_asked()) << "the mover has not filled it yet";
  report_filled(order, order.batch);
  auto replace = receive_replace();
  EXPECT_EQ(replace.body.migration, kFillMigration);
  ASSERT_EQ(replace.descriptors.size(), 1U);
  EXPECT_EQ(file_number(replace.descriptors.front()), new_);
  keeper_->answer(replace.request, local::Done{});
  hold_no_more();
  EXPECT_TRUE(fills.result());
}

TEST_F(MemoryFillTest, BatchesRunInOrderAndEachAnswerAppliesOnlyToItsBatch) {
  auto fills = fill();
  hold(0, 11);
  make(11);
  const auto first = receive_fill();
  report_filled(first, first.batch);
  keeper_->answer(receive_replace().request, local::Done{});
  hold(1, 12);
  make(12);
  const auto second = receive_fill();
  EXPECT_EQ(second.session, first.session);
  report_filled(second, first.batch);
  EXPECT_FALSE(keeper_->is_asked());
  report_filled(second, second.batch);
  keeper_->answer(receive_replace().request, local::Done{});
  hold_no_more();
  EXPECT_TRUE(fills.result());
}

TEST_F(MemoryFillTest, EmptySetSendsNoOrderToTheRank) {
  auto fills = fill();
  hold_no_more();
  EXPECT_TRUE(fills.result());
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(MemoryFillTest, RefusedFillLeavesTheSetUnchanged) {
  auto fills = fill();
  hold(0, 11);
  make(11);
  const auto order = receive_fill();
  mover::FillFailed failed;
  failed.session = order.session;
  failed.batch = order.batch;
  failed.failure = mover::Failure(Error(ErrorCode::kCorrupt, "the copy differs"));
  mover_->send(failed);
  ASSERT_FALSE(fills.result());
  EXPECT_THAT(fills.result().error().to_string(), HasSubstr("the copy differs"));
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(MemoryFillTest, DeathOfTheMoverDuringAFillLeavesTheSetUnchanged) {
  auto fills = fill();
  hold(0, 11);
  make(11);
  receive_fill();
  mover_->exit(6);
  ASSERT_FALSE(fills.result());
  EXPECT_THAT(fills.result().error().to_string(), HasSubstr("exit status 6"));
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(MemoryFillTest, SilentMoverTimesOutAfterTheStepLimit) {
  auto fills = fill(Milliseconds(2000));  // also limits make(), which must not fail on a slow machine
  hold(0, 11);
  make(11);
  receive_fill();
  ASSERT_FALSE(fills.result());
  EXPECT_EQ(fills.result().error().code(), ErrorCode::kTimedOut);
}

TEST_F(MemoryFillTest, MemoryThatDiffersFromTheRequestIsNotFilled) {
  auto fills = fill();
  hold(0, 11);
  make(12);
  ASSERT_FALSE(fills.result());
  EXPECT_EQ(fills.result().error().code(), ErrorCode::kProtocol);
}

TEST_F(MemoryFillTest, SetThatMakesNoProgressIsAnError) {
  auto fills = fill();
  const auto fetch = keeper_->receive<local::Fetch>("the question for a part of the set");
  local::Held held;
  held.sequence = fetch.body.from;  // otherwise the loop would never end
  held.records.push_back({11, 1, kFilledBytes, {}});
  keeper_->answer(fetch.request, held, files(1));
  ASSERT_FALSE(fills.result());
  EXPECT_EQ(fills.result().error().code(), ErrorCode::kProtocol);
}

TEST_F(MemoryFillTest, LossOfTheKeeperDuringAFillIsAnError) {
  auto fills = fill();
  hold(0, 11);
  make(11);
  const auto order = receive_fill();
  keeper_->go_away();
  report_filled(order, order.batch);
  ASSERT_FALSE(fills.result());
  EXPECT_EQ(fills.result().error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace ckpt::agent
