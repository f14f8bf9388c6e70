// SPDX-License-Identifier: Apache-2.0
// Tests the runner with a protocol of this test: each event names the answer of its machine.
#include "libckpt/runner/machine_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "libckpt/net/control/spawn.h"

namespace ckpt::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kDeadline{30};

enum class Clock { kShort, kLong };
struct Write {
  std::string record;
};
struct Arm {
  Clock timer;
};
struct Disarm {
  Clock timer;
};
struct Do {
  std::string what;
};
using TestAction = std::variant<Write, Arm, Disarm, Do>;

struct TestTypes {
  struct Key {
    wire::MigrationId migration = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Batch {
    Key key;
    std::vector<TestAction> actions;
  };
  struct Event {
    std::string name;
    std::vector<TestAction> actions;  // actions of the event's only batch
    bool is_possible = true;
    bool needs_disk = false;
  };
  using Action = TestAction;
  using Record = std::string;
  using WriteRecord = Write;
  using ArmTimer = Arm;
  using DisarmTimer = Disarm;
  using Timer = Clock;
};
using Event = TestTypes::Event;

class TestProtocol : public Protocol<TestTypes> {
 public:
  [[nodiscard]] std::uint64_t queue_of(wire::MigrationId migration) const override { return migration; }
  Result<Step<Batch>> step(wire::MigrationId migration, const TestTypes::Event& event) override {
    lines.push_back("take " + event.name);
    if (!event.is_possible) return Error(ErrorCode::kProtocol, event.name + " cannot be");
    Batches batches;
    batches.push_back({{migration}, event.actions});
    if (!event.needs_disk) return Step<Batch>(std::move(batches));
    return Step<Batch>(DiskWork<Batch>{[this, name = event.name] { return append({}, name); },
                                       [this, batches](const Result<void>& outcome) -> Result<Batches> {
                                         lines.push_back(outcome ? "disk done" : "disk failed");
                                         return batches;
                                       }});
  }
  [[nodiscard]] TestTypes::Event timer_fired(const Key&, Clock timer) const override {
    return {timer == Clock::kShort ? "short timer" : "long timer", {}};
  }
  Result<Batches> record_refused(const Batch& batch, const std::string& record, const Error&) override {
    Batches batches;
    batches.push_back({batch.key, {Do{"without " + record}}});
    return batches;
  }
  // Appends a record; waits while the record is held.
  Result<void> append(const Batch&, const std::string& record) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kDeadline, [&] { return !held_.contains(record); }))
      return Error(ErrorCode::kTimedOut, "nobody let " + record + " go");
    if (record == "full disk") return Error(ErrorCode::kRefused, "no space");
    if (record == "broken disk") return Error(ErrorCode::kIo, "broken");
    return ok();
  }
  void appended(const Batch&, const std::string& record) override { lines.push_back("wrote " + record); }
  void perform(const Batch&, const TestAction& action) override {
    lines.push_back("do " + std::get<Do>(action).what);
  }
  [[nodiscard]] std::chrono::milliseconds duration(const Batch&, const Arm& timer) const override {
    return timer.timer == Clock::kShort ? std::chrono::milliseconds(1) : std::chrono::hours(1);
  }
  void on_event_done(wire::MigrationId, const TestTypes::Event* event, const Result<void>&) override {
    if (event != nullptr) lines.push_back("handled " + event->name);
  }
  [[nodiscard]] std::string name_of(const std::string& record) const override { return record; }

  void hold(const std::string& record) {
    const std::lock_guard lock(mutex_);
    held_.insert(record);
  }
  void release(const std::string& record) {
    const std::lock_guard lock(mutex_);
    held_.erase(record);
    changed_.notify_all();
  }
  [[nodiscard]] bool has(const std::string& line) const {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }

  std::vector<std::string> lines;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_;
};

class MachineRunnerTest : public ::testing::Test {
 public:
  ~MachineRunnerTest() override { disk_.join(); }

 protected:
  void run_until(const std::function<bool()>& done, const std::string& what) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    io_.restart();
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end)
          << what << ": " << ::testing::PrintToString(protocol_.lines);
      io_.run_one_for(std::chrono::milliseconds(100));
      if (io_.stopped()) io_.restart();
    }
  }
  void run_until_line(const std::string& line) {
    run_until([&] { return protocol_.has(line); }, line);
  }
  void run_until_idle(wire::MigrationId id) {
    run_until([&] { return !runner_.is_busy(id); }, "an idle queue");
  }

  control::asio::io_context io_;
  control::asio::thread_pool disk_{1};
  TestProtocol protocol_;
  std::vector<Error> fatal_;
  MachineRunner<TestTypes> runner_{
      io_.get_executor(), disk_, protocol_, {4, 6}, [this](const Error& error) { fatal_.push_back(error); }};
};

TEST_F(MachineRunnerTest, EventWithoutARecordIsHandledBeforeEnqueueReturns) {
  runner_.enqueue(1, {"first", {Do{"a"}, Do{"b"}}});
  EXPECT_THAT(protocol_.lines, ElementsAre("take first", "do a", "do b", "handled first"));
  EXPECT_FALSE(runner_.is_busy(1));
}

TEST_F(MachineRunnerTest, ActionsAfterARecordWaitUntilTheRecordIsDurable) {
  protocol_.hold("record");
  runner_.enqueue(1, {"first", {Do{"before"}, Write{"record"}, Do{"after"}}});
  runner_.enqueue(1, {"second", {Do{"later"}}});
  runner_.enqueue(2, {"other", {Do{"beside"}}});
  EXPECT_THAT(protocol_.lines,
              ElementsAre("take first", "do before", "take other", "do beside", "handled other"));
  EXPECT_EQ(runner_.waiting(1), 1U);
  protocol_.lines.clear();
  protocol_.release("record");
  run_until_idle(1);
  EXPECT_THAT(protocol_.lines, ElementsAre("wrote record", "do after", "handled first", "take second",
                                           "do later", "handled second"));
}

TEST_F(MachineRunnerTest, ARefusedRecordIsReturnedToItsMachineAndDropsItsBatch) {
  runner_.enqueue(1, {"first", {Write{"full disk"}, Do{"after"}}});
  run_until_idle(1);
  EXPECT_THAT(protocol_.lines, ElementsAre("take first", "do without full disk", "handled first"));
  EXPECT_THAT(fatal_, IsEmpty());
}

TEST_F(MachineRunnerTest, ARecordWithAnUnknownOutcomeIsFatalAndStopsTheQueue) {
  runner_.enqueue(1, {"first", {Write{"broken disk"}, Do{"after"}}});
  runner_.enqueue(1, {"second", {Do{"later"}}});
  run_until([&] { return !fatal_.empty(); }, "a fatal error");
  ASSERT_EQ(fatal_.size(), 1U);
  EXPECT_EQ(fatal_.front().code(), ErrorCode::kIo);
  EXPECT_THAT(protocol_.lines, ElementsAre("take first"));
}

TEST_F(MachineRunnerTest, AWaitingCallerGetsTheErrorOfAnInvalidEvent) {
  std::optional<Result<void>> answer;
  const auto wait = [&]() -> control::Task<> {
    Event impossible{"nonsense", {}, false};
    answer = co_await runner_.enqueue_and_wait(1, std::move(impossible));
  };
  control::spawn(io_.get_executor(), "waiting", wait());
  run_until([&] { return answer.has_value(); }, "an answer");
  ASSERT_FALSE(*answer);
  EXPECT_EQ(answer->error().code(), ErrorCode::kProtocol);
  EXPECT_FALSE(runner_.is_busy(1));
}

TEST_F(MachineRunnerTest, CaughtUpReturnsOnceAllEarlierEventsAreHandled) {
  protocol_.hold("record");
  runner_.enqueue(1, {"first", {Write{"record"}}});
  runner_.enqueue(1, {"second", {Do{"later"}}});
  bool is_caught_up = false;
  const auto wait = [&]() -> control::Task<> {
    co_await runner_.caught_up(1);
    is_caught_up = true;
    EXPECT_TRUE(protocol_.has("handled second"));
  };
  control::spawn(io_.get_executor(), "waiting", wait());
  io_.poll();
  EXPECT_FALSE(is_caught_up);
  protocol_.release("record");
  run_until([&] { return is_caught_up; }, "the end of what came before");
}

TEST_F(MachineRunnerTest, LaterEventsWaitForTheDiskWorkOfAnEarlierEvent) {
  protocol_.hold("first");
  runner_.enqueue(1, {"first", {Do{"a"}}, true, true});
  runner_.enqueue(1, {"second", {Do{"b"}}});
  EXPECT_THAT(protocol_.lines, ElementsAre("take first"));
  protocol_.release("first");
  run_until_idle(1);
  EXPECT_THAT(protocol_.lines, ElementsAre("take first", "disk done", "do a", "handled first", "take second",
                                           "do b", "handled second"));
}

TEST_F(MachineRunnerTest, AnArmedTimerFiresOnceAndADisarmedTimerNever) {
  runner_.enqueue(1, {"arm", {Arm{Clock::kShort}, Arm{Clock::kShort}}});
  runner_.enqueue(2, {"arm and disarm", {Arm{Clock::kShort}, Disarm{Clock::kShort}}});
  runner_.enqueue(3, {"arm, disarmed from outside", {Arm{Clock::kShort}}});
  runner_.disarm([](const TestTypes::Key& key) { return key.migration == 3; });
  run_until_line("handled short timer");
  io_.restart();
  io_.run_for(std::chrono::milliseconds(50));
  EXPECT_EQ(std::count(protocol_.lines.begin(), protocol_.lines.end(), "take short timer"), 1);
}

TEST_F(MachineRunnerTest, AnArmedTimerCanBeFiredImmediately) {
  runner_.enqueue(1, {"arm", {Arm{Clock::kLong}}});
  runner_.fire_now([](Clock timer) { return timer == Clock::kShort; });
  EXPECT_FALSE(protocol_.has("take long timer"));
  runner_.fire_now([](Clock timer) { return timer == Clock::kLong; });
  EXPECT_TRUE(protocol_.has("handled long timer"));
  protocol_.lines.clear();
  runner_.fire_now([](Clock) { return true; });
  EXPECT_THAT(protocol_.lines, IsEmpty());
}

// The limits are 4 places for one migration and 6 in total.
TEST_F(MachineRunnerTest, WaitingMessagesAreBoundedAndOwnEventsAreKept) {
  for (const wire::MigrationId id : {1, 2, 3}) {
    protocol_.hold("record");
    runner_.enqueue(id, {"first", {Write{"record"}}});
  }
  for (int i = 0; i < 1000; ++i) runner_.enqueue_remote(1, {"flood " + std::to_string(i), {}});
  EXPECT_EQ(runner_.waiting(1), 4U);
  runner_.enqueue(1, {"own", {}});
  for (int i = 0; i < 3; ++i) runner_.enqueue_remote(2, {"from 2", {}});
  runner_.enqueue_remote(3, {"from 3", {}});
  EXPECT_EQ(runner_.waiting(1), 3U);  // "flood 0", "flood 1" and the event "own"
  EXPECT_EQ(runner_.waiting(3), 1U);
  protocol_.release("record");
  for (const wire::MigrationId id : {1, 2, 3}) run_until_idle(id);
  EXPECT_TRUE(protocol_.has("handled own"));
  EXPECT_TRUE(protocol_.has("handled flood 1"));
  EXPECT_FALSE(protocol_.has("handled flood 2"));
  EXPECT_TRUE(protocol_.has("handled from 3"));
}

}  // namespace
}  // namespace ckpt::runner
