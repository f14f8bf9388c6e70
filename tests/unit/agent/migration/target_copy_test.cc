// SPDX-License-Identifier: Apache-2.0
// The target's session of one migration and its mover. The test plays the mover and the migration mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "agent/migration/target_session.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The results that the test sets for the mode, and the calls that the session has made to it. A blocked step
// waits for go_on.
struct TargetScript {
  explicit TargetScript(const asio::any_io_executor& executor)
      : ready(executor), compare(executor), take(executor) {}
  struct Step {
    explicit Step(const asio::any_io_executor& executor) : go_on(executor) {}
    void release() {
      holds = false;
      go_on.notify();
    }
    bool holds = false;
    AsyncEvent go_on;
    Result<void> outcome = ok();
  };
  Step ready;
  Step compare;
  Step take;
  Result<void> kept = ok();
  std::vector<std::string> calls;
};

// A mode in which the mover creates the memory. The instance is created after COMMITTED.
class ScriptedTarget : public TargetMode {
 public:
  explicit ScriptedTarget(TargetScript& script) : script_(script) {}
  std::shared_ptr<Job> find() override { return nullptr; }
  Task<Result<std::shared_ptr<Job>>> start() override {
    script_.calls.emplace_back("start");
    co_return std::shared_ptr<Job>();
  }
  Task<Result<void>> ready(std::shared_ptr<Job> /*job*/) override { return run_step(script_.ready, "ready"); }
  Task<Result<void>> compare(wire::Bytes /*payload*/) override {
    return run_step(script_.compare, "compare");
  }
  [[nodiscard]] bool has_memory() const override { return false; }
  Task<Result<void>> import_memory(std::shared_ptr<Job> /*job*/, std::vector<mover::RegionInfo> /*regions*/,
                                   std::vector<UniqueFd> /*descriptors*/) override {
    return run_step(script_.take, "take");
  }
  Task<Result<void>> drop_memory(std::shared_ptr<Job> /*job*/,
                                 std::vector<std::uint64_t> /*regions*/) override {
    script_.calls.emplace_back("drop");
    co_return ok();
  }
  Result<void> store_host_state(std::shared_ptr<Job> /*job*/, HostState /*state*/) override {
    script_.calls.emplace_back("keep");
    return script_.kept;
  }
  Task<Result<void>> run(std::shared_ptr<Job> /*job*/, RunOrder /*order*/,
                         wire::TargetReport* /*report*/) override {
    co_return ok();
  }
  [[nodiscard]] PauseWork pause_work(const Job& /*job*/) const override {
    return PauseWork(PauseKind::kCooperative);
  }
  Task<> end(std::shared_ptr<Job> /*job*/) override { co_return; }
  Task<> free(std::shared_ptr<Job> /*job*/) override {
    script_.calls.emplace_back("free");
    co_return;
  }

 private:
  Task<Result<void>> run_step(TargetScript::Step& step, const char* what) {
    script_.calls.emplace_back(what);
    while (step.holds) co_await step.go_on.wait(std::chrono::steady_clock::time_point::max());
    co_return step.outcome;
  }
  TargetScript& script_;
};

class TargetCopyTest : public WithContext<NodeOfJobs> {
 protected:
  void SetUp() override {
    mover_ = movers_.serve();
    gpus_.movers[0] = movers_.process;
    plan_.spec.job = 1;
    plan_.spec.argv = {"/bin/true"};
    plan_.spec.cwd = "/";
    plan_.spec.uid = ::getuid();
    plan_.spec.ranks.emplace_back();
    plan_.target_ranks.emplace_back();
    plan_.source_node = "node-a";
    plan_.target_node = "node-b";
    plan_.fingerprint_key.resize(wire::kFingerprintKeyBytes);
    plan_.session_token.resize(wire::kSessionTokenBytes);
    begin();
  }
  void TearDown() override {
    for (TargetScript::Step* step : {&script_.ready, &script_.compare, &script_.take}) step->release();
    mover_->exit(0);
    mover_->await_agent_gone();
    const std::weak_ptr<TargetSession> left = session_;
    session_.reset();
    await_event(io_, "the session is gone", [&left] { return left.expired(); });
  }
  void begin() {
    const migration::HandoverInfo info(9, 1, 1, {}, wire::encode(plan_));
    session_ =
        std::make_shared<TargetSession>(context_, events_, info, std::make_unique<ScriptedTarget>(script_));
  }
  template <class Event>
  [[nodiscard]] int count() const {
    return count_of<Event>(events_.of_target);
  }
  template <class Event>
  void await_one(const std::string& what) {
    await_event(io_, what, [this] { return count<Event>() == 1; });
  }
  void await_call(const std::string& what) {
    await_event(io_, "the mode is asked to " + what, [this, &what] { return calls(what) > 0; });
  }
  [[nodiscard]] std::ptrdiff_t calls(const std::string& what) const {
    return std::count(script_.calls.begin(), script_.calls.end(), what);
  }
  template <class M>
  static M of_copy() {
    M message;
    message.session = mover::SessionKey(9, 0);
    return message;
  }
  void prepare() {
    session_->perform(migration::PrepareStandby{});
    const auto opened = mover_->receive<mover::OpenSession>("the mover's session is opened");
    EXPECT_EQ(opened.side, wire::Side::kTarget);
    EXPECT_TRUE(opened.makes_memory);
    mover_->receive<mover::StartTarget>("the order to listen");
    auto listening = of_copy<mover::Listening>();
    listening.addresses = {"10.0.0.1:7001"};
    mover_->send(listening);
    await_one<migration::StandbyReady>("the target is ready");
  }
  void receive() {
    session_->perform(migration::StartReceiving({}));
    await_call("compare");
  }
  void make_region() {
    auto made = of_copy<mover::MadeRegions>();
    made.regions.emplace_back(11, 1, 4096);
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(make_memory_file("region", 4096).value());
    mover_->send(made, std::move(descriptors));
  }
  void settle() { run_ready(io_); }

  FakeMovers movers_{io_, home_.path()};
  std::unique_ptr<FakeMover> mover_;
  JobTable jobs_{*environment_};
  MigrationContext context_ = context(jobs_);
  TargetScript script_{io_.get_executor()};
  wire::MigrationPlan plan_;
  std::shared_ptr<TargetSession> session_;
};

TEST_F(TargetCopyTest, TargetIsReadyOnceItsMoverListensAndNamesTheAddress) {
  prepare();
  const auto& ready = std::get<migration::StandbyReady>(events_.of_target.front());
  const auto payload = wire::decode<EndpointPayload>(ready.payload);
  ASSERT_TRUE(payload);
  EXPECT_THAT(payload->addresses, ElementsAre("10.0.0.1:7001"));
}

TEST_F(TargetCopyTest, JobThatTheNodeMayNotRunIsRefusedBeforeAnyStart) {
  plan_.target_ranks.front().gpu_index = 3;
  begin();
  session_->perform(migration::PrepareStandby{});
  await_one<migration::StandbyRefused>("the refusal");
  EXPECT_THAT(script_.calls, IsEmpty());
}

TEST_F(TargetCopyTest, PlanOfAnotherJobIsRefused) {
  plan_.spec.job = 2;
  begin();
  session_->perform(migration::PrepareStandby{});
  await_one<migration::StandbyRefused>("the refusal");
  EXPECT_THAT(script_.calls, IsEmpty());
}

TEST_F(TargetCopyTest, DeathOfTheMoverBeforeItListensIsReportedAsARefusal) {
  session_->perform(migration::PrepareStandby{});
  mover_->receive<mover::OpenSession>("the mover's session is opened");
  mover_->receive<mover::StartTarget>("the order to listen");
  mover_->exit(3);
  await_one<migration::StandbyRefused>("the refusal");
  settle();
  EXPECT_EQ(count<migration::StandbyRefused>(), 1) << "the session and its step fail, but the refusal is one";
  EXPECT_EQ(count<migration::StandbyReady>(), 0);
  EXPECT_EQ(count<migration::EngineFailed>(), 0);
}

TEST_F(TargetCopyTest, AbandonedPreparationIsFreedAtItsEndWithoutAnEvent) {
  script_.ready.holds = true;
  session_->perform(migration::PrepareStandby{});
  await_call("ready");
  session_->perform(migration::FreeTarget{});
  settle();
  EXPECT_EQ(calls("free"), 0) << "the preparation is under way";
  script_.ready.release();
  mover_->receive<mover::OpenSession>("the mover's session is opened");
  mover_->receive<mover::StartTarget>("the order to listen");
  mover_->send(of_copy<mover::Listening>());
  mover_->receive<mover::EndSession>("the mover's session is ended");
  mover_->send(of_copy<mover::SessionEnded>());
  await_call("free");
  EXPECT_THAT(events_.of_target, IsEmpty());
}

// The job is still running at the source, and it must stay there if it does not fit.
TEST_F(TargetCopyTest, VerifiedIsReportedOnceTheJobIsKnownToFit) {
  script_.compare.holds = true;
  prepare();
  receive();
  mover_->send(of_copy<mover::Verified>());
  settle();
  EXPECT_EQ(count<migration::FinalVerified>(), 0);
  EXPECT_EQ(calls("keep"), 0);
  script_.compare.release();
  await_one<migration::FinalVerified>("the data is verified");
}

TEST_F(TargetCopyTest, FailureIsReportedInsteadOfVerifiedIfTheJobDoesNotFit) {
  script_.compare.outcome = Error(ErrorCode::kRefused, "a file differs");
  prepare();
  receive();
  await_one<migration::EngineFailed>("the failure");
  mover_->send(of_copy<mover::Verified>());
  settle();
  EXPECT_EQ(count<migration::FinalVerified>(), 0);
}

TEST_F(TargetCopyTest, VerifiedIsReportedAfterTheKeeperHasAllMemory) {
  script_.take.holds = true;
  prepare();
  receive();
  make_region();
  mover_->send(of_copy<mover::Verified>());
  await_call("take");
  settle();
  EXPECT_EQ(count<migration::FinalVerified>(), 0) << "the keeper does not have the memory yet";
  script_.take.release();
  await_one<migration::FinalVerified>("the data is verified");
  const auto at = [this](const char* what) {
    return std::find(script_.calls.begin(), script_.calls.end(), what);
  };
  EXPECT_LT(at("take"), at("keep"));
}

TEST_F(TargetCopyTest, FreedRegionsAreReleasedBeforeTheMoverIsNotified) {
  prepare();
  receive();
  auto gone = of_copy<mover::DroppedRegions>();
  gone.regions = {11, 12};
  mover_->send(gone);
  EXPECT_EQ(mover_->receive<mover::RegionsLetGo>("the first are let go").regions, 2U);
  EXPECT_EQ(calls("drop"), 1);
  gone.regions = {13};
  mover_->send(gone);
  EXPECT_EQ(mover_->receive<mover::RegionsLetGo>("another is let go").regions, 3U);
}

TEST_F(TargetCopyTest, FailureIsReportedInsteadOfVerifiedIfTheHostStateCannotBeStored) {
  script_.kept = Error(ErrorCode::kRefused, "the disk is full");
  prepare();
  receive();
  mover_->send(of_copy<mover::Verified>());
  await_one<migration::EngineFailed>("the failure");
  EXPECT_EQ(count<migration::FinalVerified>(), 0);
}

// VERIFIED refers only to the mover's own memory. The instance's keeper has not received all of that memory
// yet.
TEST_F(TargetCopyTest, FailureIsReportedInsteadOfVerifiedIfTheKeeperCannotTakeTheMemory) {
  script_.take.outcome = Error(ErrorCode::kUnavailable, "the keeper is gone");
  script_.take.holds = true;
  prepare();
  receive();
  make_region();
  mover_->send(of_copy<mover::Verified>());
  await_call("take");
  settle();
  script_.take.release();
  await_one<migration::EngineFailed>("the failure");
  mover_->send(of_copy<mover::Verified>());
  settle();
  EXPECT_EQ(count<migration::FinalVerified>(), 0);
  EXPECT_EQ(calls("keep"), 0);
}

TEST_F(TargetCopyTest, DeathOfTheMoverDuringTheCopyIsAFailure) {
  prepare();
  receive();
  mover_->exit(3);
  await_one<migration::EngineFailed>("the failure");
}

TEST_F(TargetCopyTest, MessagesOfTheMoverAreIgnoredOnceTheTargetIsFreed) {
  prepare();
  receive();
  session_->perform(migration::FreeTarget{});
  mover_->receive<mover::EndSession>("the mover's session is ended");
  mover_->send(of_copy<mover::Verified>());
  mover_->send(of_copy<mover::SessionEnded>());
  await_call("free");
  EXPECT_EQ(count<migration::FinalVerified>(), 0);
  EXPECT_EQ(calls("keep"), 0);
}

}  // namespace
}  // namespace ckpt::agent
