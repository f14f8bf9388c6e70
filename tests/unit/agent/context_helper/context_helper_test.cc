// SPDX-License-Identifier: Apache-2.0
// Tests of the agent's side of the context helper: against a helper that misbehaves, and against the real
// program without a driver.
#include "agent/context_helper/context_helper.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

constexpr Milliseconds kLong{60000};

class ContextHelperTest : public ::testing::Test {
 protected:
  ~ContextHelperTest() override {
    if (helper_) helper_->stop();
  }
  ContextHelper& start_fake(const std::string& behaviour) {
    ContextSettings settings;
    settings.program = FAKE_HELPER;
    settings.log_path = folder_ / "context.log";
    settings.environment = {"FAKE=" + behaviour, "STARTS=" + (folder_ / "starts")};
    settings.start_timeout = behaviour == "silent" ? Milliseconds(50) : kLong;
    settings.first_backoff = Milliseconds(1);
    helper_ = ContextHelper::create(io_.get_executor(), settings);
    return *helper_;
  }
  int starts() {
    std::ifstream file(folder_ / "starts");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  template <class T>
  T run(Task<T> task) {
    return run_until_done(io_, std::move(task));
  }
  asio::io_context io_;
  TemporaryFolder folder_;
  std::shared_ptr<ContextHelper> helper_;
};

TEST_F(ContextHelperTest, TheSameProcessServesAllOrders) {
  ContextHelper& helper = start_fake("good");
  const auto facts = run(helper.ready());
  ASSERT_TRUE(facts.has_value());
  EXPECT_TRUE(facts->can_change_gpu);
  EXPECT_EQ(facts->missing_support(), "");
  EXPECT_EQ(*run(helper.state(1)), context::ProcessState::kLocked);
  EXPECT_TRUE(run(helper.lock(1, kLong)).has_value());
  EXPECT_TRUE(run(helper.checkpoint(1, kLong)).has_value());
  context::GpuPair pair;
  pair.from[0] = 7;
  EXPECT_TRUE(run(helper.restore(1, {pair}, kLong)).has_value());
  EXPECT_FALSE(run(helper.restore(1, {context::GpuPair{}}, kLong)).has_value());
  EXPECT_TRUE(run(helper.unlock(1, kLong)).has_value());
  EXPECT_EQ(starts(), 1);
}

TEST_F(ContextHelperTest, ARestoreWithTooManyGpusIsRefusedBeforeSending) {
  ContextHelper& helper = start_fake("good");
  const auto restored = run(helper.restore(1, std::vector<context::GpuPair>(context::kMaxPairs + 1), kLong));
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error().code(), ErrorCode::kInvalidArgument);
}

Task<Result<context::ProcessState>> two_at_once(ContextHelper& helper) {
  auto executor = co_await asio::this_coro::executor;
  std::optional<Result<context::ProcessState>> other;
  AsyncEvent done(executor);
  const auto ask = [](ContextHelper* of, std::optional<Result<context::ProcessState>>* out,
                      AsyncEvent* told) -> Task<> {
    out->emplace(co_await of->state(2));
    told->notify();
  };
  control::spawn(executor, "other order", ask(&helper, &other, &done));
  auto mine = co_await helper.state(1);
  co_await done.wait(std::chrono::steady_clock::time_point::max());
  co_return mine.has_value() ? *other : mine;
}

TEST_F(ContextHelperTest, OrdersOfTwoCallersAreServedInSequence) {
  EXPECT_TRUE(run(two_at_once(start_fake("good"))).has_value());
  EXPECT_EQ(starts(), 1);
}

TEST_F(ContextHelperTest, AnErrorKeepsItsCodeAndItsTextIsTruncated) {
  const auto locked = run(start_fake("refuses").lock(1, kLong));
  ASSERT_FALSE(locked.has_value());
  EXPECT_EQ(locked.error().code(), ErrorCode::kTimedOut);
  EXPECT_EQ(locked.error().message().size(), context::kMaxText);
  EXPECT_TRUE(run(helper_->unlock(1, kLong)).has_value());
}

TEST_F(ContextHelperTest, ACrashLeavesTheEffectUnknownAndANewHelperStarts) {
  ContextHelper& helper = start_fake("dies");
  const auto checkpointed = run(helper.checkpoint(1, kLong));
  ASSERT_FALSE(checkpointed.has_value());
  EXPECT_EQ(checkpointed.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(checkpointed.error().to_string().find("unknown whether it took effect"), std::string::npos);
  EXPECT_NE(checkpointed.error().to_string().find("signal 9"), std::string::npos);
  EXPECT_TRUE(run(helper.state(1)).has_value());
  EXPECT_EQ(starts(), 2);
}

TEST_F(ContextHelperTest, AHungHelperIsReplaced) {
  ContextHelper& helper = start_fake("hangs");
  ASSERT_TRUE(run(helper.ready()).has_value());
  const pid_t first = helper.pid();
  const auto unlocked = run(helper.unlock(1, Milliseconds(20)));
  ASSERT_FALSE(unlocked.has_value());
  EXPECT_EQ(unlocked.error().code(), ErrorCode::kTimedOut);
  EXPECT_TRUE(run(helper.state(1)).has_value());
  EXPECT_NE(helper.pid(), first);
}

TEST_F(ContextHelperTest, ADriverThatDoesNotStartTimesOut) {
  const auto facts = run(start_fake("silent").ready());
  ASSERT_FALSE(facts.has_value());
  EXPECT_EQ(facts.error().code(), ErrorCode::kTimedOut);
}

TEST_F(ContextHelperTest, MissingDriverFunctionsAreReported) {
  const auto facts = run(start_fake("no-checkpoint").ready());
  ASSERT_TRUE(facts.has_value());
  EXPECT_NE(facts->missing_support().find("570"), std::string::npos);
  const auto locked = run(helper_->lock(1, kLong));
  ASSERT_FALSE(locked.has_value());
  EXPECT_EQ(locked.error().code(), ErrorCode::kNotSupported);
  const auto older = run(start_fake("same-gpu-only").ready());
  ASSERT_TRUE(older.has_value());
  EXPECT_TRUE(older->can_checkpoint);
  EXPECT_NE(older->missing_support().find("580"), std::string::npos);
}

TEST_F(ContextHelperTest, AMissingDriverIsReportedWithoutARestart) {
  const auto facts = run(start_fake("no-driver").ready());
  ASSERT_FALSE(facts.has_value());
  EXPECT_EQ(facts.error().code(), ErrorCode::kNotSupported);
  EXPECT_EQ(facts.error().message(), "There is no driver");
  EXPECT_FALSE(helper_->serving());
  EXPECT_EQ(starts(), 1);
}

class Nonsense : public ContextHelperTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Nonsense, AMalformedAnswerEndsTheHelper) {
  const auto state = run(start_fake(GetParam()).state(1));
  ASSERT_FALSE(state.has_value());
  EXPECT_FALSE(helper_->serving());
}
INSTANTIATE_TEST_SUITE_P(ContextHelper, Nonsense,
                         ::testing::Values("garbage", "wrong-id", "wrong-state", "long-text"));

TEST_F(ContextHelperTest, TheRealHelperReportsAMissingDriver) {
  ContextSettings settings;
  settings.program = CONTEXT_PROGRAM;
  settings.log_path = folder_ / "context.log";
  settings.environment = {"LD_LIBRARY_PATH=/nonexistent"};
  helper_ = ContextHelper::create(io_.get_executor(), settings);
  const auto facts = run(helper_->ready());
  if (facts.has_value()) GTEST_SKIP() << "this machine has a CUDA driver and a GPU";
  EXPECT_EQ(facts.error().code(), ErrorCode::kNotSupported);
}

TEST(ContextMessages, ValuesOutOfRangeAreRefused) {
  const auto refused = [](void (*change)(context::Order&)) {
    context::Order order;
    order.pid = 5;
    order.kind = context::Kind::kLock;
    change(order);
    return !context::parse_order(wire::encode(order)).has_value();
  };
  EXPECT_FALSE(refused([](context::Order&) {}));
  EXPECT_TRUE(refused([](context::Order& o) { o.kind = context::Kind::kReady; }));
  EXPECT_TRUE(refused([](context::Order& o) { o.kind = static_cast<context::Kind>(99); }));
  EXPECT_TRUE(refused([](context::Order& o) { o.pairs.resize(context::kMaxPairs + 1); }));
  EXPECT_TRUE(refused([](context::Order& o) { o.pid = 0; }));
}

TEST(ContextMessages, TruncatedAndOverlongPacketsAreRefused) {
  context::Order order;
  order.pid = 5;
  order.pairs.resize(1);
  auto bytes = wire::encode(order);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(context::parse_order(std::span(bytes).first(size)).has_value()) << size;
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(context::parse_order(bytes).has_value());
}

TEST(ContextMessages, TheLongestMessagesFitIntoAPacket) {
  context::Order order;
  order.pid = 5;
  order.pairs.resize(context::kMaxPairs);
  order.pairs.back().to.back() = 7;
  const auto order_bytes = wire::encode(order);
  EXPECT_LE(order_bytes.size(), context::kMaxOrderBytes);
  const auto read = context::parse_order(order_bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->pairs.back().to.back(), 7);
  context::Answer answer;
  context::set_text(answer, std::string(2 * context::kMaxText, 'x'));
  const auto answer_bytes = wire::encode(answer);
  EXPECT_LE(answer_bytes.size(), context::kMaxAnswerBytes);
  EXPECT_TRUE(context::parse_answer(answer_bytes).has_value());
}

}  // namespace
}  // namespace ckpt::agent
