// SPDX-License-Identifier: Apache-2.0
// The source's session of one migration, with a migration mode, a keeper and a mover played by the test.
#include "agent/migration/source_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/jobs/played_job.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The results that the test sets for the mode, and the calls that the session has made to it.
struct ModeScript {
  explicit ModeScript(const asio::any_io_executor& executor) : save_goes_on(executor) {}
  bool sends_host_state = false;
  std::uint64_t host_bytes = 0;
  Result<void> checked = ok();
  Result<void> saved = ok();
  bool holds_save = false;
  AsyncEvent save_goes_on;
  int refusals_to_go_back = 0;
  std::vector<std::string> calls;
};

class ScriptedSource : public SourceMode {
 public:
  explicit ScriptedSource(ModeScript& script) : script_(script) {}
  [[nodiscard]] bool sends_host_state() const override { return script_.sends_host_state; }
  Task<Result<void>> check(std::shared_ptr<Job> /*job*/) override {
    script_.calls.emplace_back("check");
    co_return script_.checked;
  }
  [[nodiscard]] PauseWork pause_work(const Job& /*job*/,
                                     const local::StateSummary& /*summary*/) const override {
    return PauseWork(PauseKind::kCooperative);
  }
  Task<Result<HostState>> save(std::shared_ptr<Job> /*job*/, PausedState /*paused*/,
                               wire::SourceReport& /*report*/) override {
    script_.calls.emplace_back("save");
    while (script_.holds_save)
      co_await script_.save_goes_on.wait(std::chrono::steady_clock::time_point::max());
    script_.calls.emplace_back("saved");
    if (!script_.saved) co_return script_.saved.error();
    HostState state;
    if (script_.host_bytes > 0)
      state = HostState(make_memory_file("host", script_.host_bytes).value(), script_.host_bytes);
    co_return std::move(state);
  }
  Task<Result<void>> go_back(std::shared_ptr<Job> /*job*/) override {
    script_.calls.emplace_back("go back");
    if (script_.refusals_to_go_back > 0) {
      --script_.refusals_to_go_back;
      co_return Error(ErrorCode::kUnavailable, "a service is away");
    }
    co_return ok();
  }
  Task<> release() override {
    script_.calls.emplace_back("let go");
    co_return;
  }
  Task<> leave(std::shared_ptr<Job> /*job*/) override {
    script_.calls.emplace_back("leave");
    co_return;
  }

 private:
  ModeScript& script_;
};

class SourceSessionTest : public WithContext<PlayedJob> {
 protected:
  void SetUp() override {
    PlayedJob::SetUp();
    mover_ = movers_.serve();
    gpus_.movers[0] = movers_.process;
    context_.emplace(context(*jobs_));
    wire::MigrationPlan plan;
    plan.spec.job = 1;
    plan.spec.argv = {"/bin/true"};
    plan.spec.ranks.emplace_back();
    plan.target_ranks.emplace_back();
    plan.source_node = "node-a";
    plan.target_node = "node-b";
    plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
    plan.session_token.resize(wire::kSessionTokenBytes);
    info_ = migration::HandoverInfo(9, 1, 1, {}, wire::encode(plan));
    begin();
  }
  void TearDown() override {
    script_.holds_save = false;
    script_.save_goes_on.notify();
    mover_->exit(0);
    mover_->await_agent_gone();
    PlayedJob::TearDown();
    const std::weak_ptr<SourceSession> left = session_;
    session_.reset();
    await_event(io_, "the session is gone", [&left] { return left.expired(); });
  }
  void begin() {
    session_ =
        std::make_shared<SourceSession>(*context_, events_, info_, std::make_unique<ScriptedSource>(script_));
  }
  template <class Event>
  [[nodiscard]] int count() const {
    return count_of<Event>(events_.of_source);
  }
  template <class Event>
  void await_one(const std::string& what) {
    await_event(io_, what, [this] { return count<Event>() == 1; });
  }
  [[nodiscard]] bool has_called(const std::string& what) const {
    return std::find(script_.calls.begin(), script_.calls.end(), what) != script_.calls.end();
  }
  // Receives the order to export without answering it.
  void begin_preparation() {
    session_->perform(migration::PrepareSource{});
    mover_->receive<mover::OpenSession>("the mover's session is opened");
    export_ = keeper_->receive<local::Export>("the export is asked for").request;
  }
  void prepare() {
    begin_preparation();
    keeper_->answer(export_, local::ExportEnd{});
    await_one<migration::SourceReady>("the source is ready");
  }
  // Pauses the job at its barrier.
  void pause() {
    session_->perform(migration::PauseJob{});
    local::Paused paused;
    paused.barrier_entry_ns = paused.quiesced_ns = 700;
    keeper_->answer(keeper_->receive<local::Pause>("the order to pause").request, paused);
    await_one<migration::JobPaused>("the job is paused");
  }
  void prepare_and_pause() {
    prepare();
    pause();
  }
  // Answers the orders that end the copy: first the rank's export, then the mover's session.
  void end_copy() {
    keeper_->answer(keeper_->receive<local::StopExport>("the export is ended").request, local::Done{});
    mover_->receive<mover::EndSession>("the mover's session is ended");
    mover::SessionEnded ended;
    ended.session = mover::SessionKey(info_.migration, 0);
    mover_->send(ended);
  }
  template <class M>
  void say() {
    M message;
    message.session = mover::SessionKey(info_.migration, 0);
    mover_->send(message);
  }
  void answer_running() {
    const auto order = keeper_->receive<local::Resume>("the order to go on");
    local::Running running;
    running.incarnation = order.body.incarnation;
    keeper_->answer(order.request, running);
  }
  // Sends a message and checks that the session has sent the mover nothing before it.
  void expect_nothing_for_mover() {
    settle();
    ASSERT_TRUE(movers_.process->send(mover::JobLeft()));
    mover_->receive<mover::JobLeft>("nothing but the message behind");
  }

  FakeMovers movers_{io_, home_.path()};
  std::unique_ptr<FakeMover> mover_;
  ModeScript script_{io_.get_executor()};
  std::optional<MigrationContext> context_;
  migration::HandoverInfo info_;
  std::shared_ptr<SourceSession> session_;
  std::uint64_t export_ = 0;
};

// ---- preparation ----

TEST_F(SourceSessionTest, NothingIsChangedBeforeOtherOperationsReleaseTheJob) {
  holder_.holds = true;
  session_->perform(migration::PrepareSource{});
  settle();
  EXPECT_THAT(holder_.asked, ElementsAre(1U));
  EXPECT_THAT(script_.calls, IsEmpty());
  expect_nothing_for_mover();
  holder_.release();
  mover_->receive<mover::OpenSession>("the mover's session is opened");
  EXPECT_THAT(script_.calls, ElementsAre("check"));
  keeper_->answer(keeper_->receive<local::Export>("the export is asked for").request, local::ExportEnd{});
  await_one<migration::SourceReady>("the source is ready");
}

TEST_F(SourceSessionTest, UnmovableJobIsRefusedWithoutAMessageToTheMover) {
  script_.checked = Error(ErrorCode::kRefused, "it has an open socket");
  session_->perform(migration::PrepareSource{});
  await_one<migration::SourceRefused>("the refusal");
  expect_nothing_for_mover();
  EXPECT_EQ(events_.of_source.size(), 1U);
}

TEST_F(SourceSessionTest, UndecodablePlanIsRefused) {
  info_.plan = wire::Bytes(3);
  begin();
  session_->perform(migration::PrepareSource{});
  await_one<migration::SourceRefused>("the refusal");
  EXPECT_FALSE(has_called("check"));
}

TEST_F(SourceSessionTest, FailedExportIsReportedAsARefusal) {
  begin_preparation();
  keeper_->refuse(export_, local::MessageType::kExport, Error(ErrorCode::kDevice, "cannot export"));
  await_one<migration::SourceRefused>("the refusal");
  EXPECT_EQ(events_.of_source.size(), 1U);
}

TEST_F(SourceSessionTest, DeathOfTheMoverDuringPreparationIsReportedAsARefusal) {
  begin_preparation();
  local::ExportBatch batch;
  batch.sequence = 1;
  batch.records.push_back({11, 1, 4096, {}});
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(make_memory_file("region", 4096).value());
  keeper_->answer(export_, batch, std::move(descriptors));
  mover_->receive<mover::AttachRegions>("the memory");
  mover_->exit(3);
  await_one<migration::SourceRefused>("the refusal");
  settle();
  EXPECT_EQ(count<migration::SourceRefused>(), 1) << "the session and its step fail, but the refusal is one";
  EXPECT_EQ(count<migration::EngineFailed>(), 0) << "nothing had begun";
  EXPECT_EQ(count<migration::SourceReady>(), 0);
}

TEST_F(SourceSessionTest, AbandonedPreparationReleasesItsResourcesWithoutAnEvent) {
  begin_preparation();
  session_->perform(migration::StopCopy{});
  settle();
  EXPECT_FALSE(has_called("let go")) << "the preparation is under way";
  keeper_->answer(export_, local::ExportEnd{});
  end_copy();
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  EXPECT_THAT(events_.of_source, IsEmpty());
}

// ---- copy ----

TEST_F(SourceSessionTest, UndecodablePayloadFailsTheCopy) {
  prepare();
  session_->perform(migration::StartPrecopy(wire::Bytes(3)));
  EXPECT_EQ(count<migration::EngineFailed>(), 1);
  expect_nothing_for_mover();
}

TEST_F(SourceSessionTest, CopyConnectsToTheAddressesOfTheTarget) {
  prepare();
  EndpointPayload payload;
  payload.addresses = {"10.0.0.2:7001"};
  session_->perform(migration::StartPrecopy(wire::encode(payload)));
  EXPECT_THAT(mover_->receive<mover::StartSource>("the copy is started").addresses,
              ElementsAre("10.0.0.2:7001"));
}

TEST_F(SourceSessionTest, CopyWithoutPreparationFails) {
  session_->perform(migration::StartPrecopy(wire::encode(EndpointPayload())));
  EXPECT_EQ(count<migration::EngineFailed>(), 1);
}

TEST_F(SourceSessionTest, DeathOfTheMoverFailsTheCopyOnce) {
  prepare();
  mover_->exit(3);
  await_one<migration::EngineFailed>("the failure");
  settle();
  EXPECT_EQ(count<migration::EngineFailed>(), 1);
  EXPECT_EQ(count<migration::SourceRefused>(), 0);
}

TEST_F(SourceSessionTest, DeathOfTheMoverAfterAStoppedCopyIsNoFailure) {
  prepare();
  session_->perform(migration::StopCopy{});
  mover_->exit(3);
  keeper_->answer(keeper_->receive<local::StopExport>("the export is ended").request, local::Done{});
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  EXPECT_EQ(count<migration::EngineFailed>(), 0);
}

TEST_F(SourceSessionTest, ProgressOfTheMoverIsReported) {
  prepare();
  mover::Progress progress;
  progress.session = mover::SessionKey(info_.migration, 0);
  progress.round = 2;
  progress.remaining_bytes = 300;
  mover_->send(progress);
  await_event(io_, "the progress is reported", [this] { return !reports_.progresses.empty(); });
  EXPECT_EQ(reports_.progresses.front().migration, info_.migration);
  EXPECT_EQ(reports_.progresses.front().round, 2U);
  EXPECT_EQ(reports_.progresses.front().remaining_bytes, 300U);
}

// The transfer may have been dropped from the node's counts. A report would then add all its bytes a second
// time.
TEST_F(SourceSessionTest, ProgressAfterThePausedCopyWasStoppedIsNotReported) {
  prepare_and_pause();
  session_->perform(migration::StopCopy{});
  settle();
  say<mover::Progress>();
  end_copy();
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  EXPECT_TRUE(reports_.progresses.empty());
}

// ---- the barrier ----

TEST_F(SourceSessionTest, FinalRoundRunsDuringTheSaveAndTheManifestWaitsForBoth) {
  script_.holds_save = true;
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  EXPECT_EQ(mover_->receive<mover::FinalRound>("the final round").barrier_entered_ns, 700);
  await_event(io_, "the save begins", [this] { return has_called("save"); });
  session_->perform(migration::ReleaseManifest{});
  expect_nothing_for_mover();  // the target must not commit a job whose state is not saved
  script_.holds_save = false;
  script_.save_goes_on.notify();
  mover_->receive<mover::ReleaseManifest>("the manifest is released");
  session_->perform(migration::ReleaseManifest{});
  expect_nothing_for_mover();  // the manifest is released only once
}

TEST_F(SourceSessionTest, ManifestWaitsForTheRecordOfTheBarrier) {
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  mover_->receive<mover::FinalRound>("the final round");
  await_event(io_, "the save is over", [this] { return has_called("saved"); });
  expect_nothing_for_mover();  // BARRIER is not durable yet
  session_->perform(migration::ReleaseManifest{});
  mover_->receive<mover::ReleaseManifest>("the manifest is released");
}

TEST_F(SourceSessionTest, FinalRoundThatCarriesTheHostStateWaitsForTheSave) {
  script_.sends_host_state = true;
  script_.host_bytes = 512;
  script_.holds_save = true;
  begin();
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  expect_nothing_for_mover();
  script_.holds_save = false;
  script_.save_goes_on.notify();
  std::vector<UniqueFd> descriptors;
  EXPECT_EQ(mover_->receive<mover::FinalRound>("the final round", &descriptors).host_state_bytes, 512U);
  EXPECT_EQ(descriptors.size(), 1U);
}

TEST_F(SourceSessionTest, FailedSaveIsReportedAndReleasesNoManifest) {
  script_.saved = Error(ErrorCode::kRefused, "the disk is full");
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  mover_->receive<mover::FinalRound>("the final round");
  await_one<migration::EngineFailed>("the failure");
  session_->perform(migration::ReleaseManifest{});
  expect_nothing_for_mover();
}

TEST_F(SourceSessionTest, SaveThatEndsAfterAStoppedCopyReleasesNoManifest) {
  script_.holds_save = true;
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  mover_->receive<mover::FinalRound>("the final round");
  session_->perform(migration::ReleaseManifest{});
  await_event(io_, "the save begins", [this] { return has_called("save"); });
  session_->perform(migration::StopCopy{});
  end_copy();
  settle();
  EXPECT_FALSE(has_called("let go")) << "the save still writes";
  script_.holds_save = false;
  script_.save_goes_on.notify();
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  expect_nothing_for_mover();
  EXPECT_EQ(count<migration::EngineFailed>(), 0);
}

TEST_F(SourceSessionTest, AcknowledgedDataIsReportedToTheMachine) {
  prepare_and_pause();
  say<mover::FinalDone>();
  await_one<migration::FinalDataAcknowledged>("the acknowledgement");
}

TEST_F(SourceSessionTest, UnreachedPauseIsWithdrawnWithoutAFailure) {
  prepare();
  session_->perform(migration::PauseJob{});
  const auto pause = keeper_->receive<local::Pause>("the order to pause");
  session_->perform(migration::StopCopy{});
  const auto resume = keeper_->receive<local::Resume>("the pause is taken back");
  EXPECT_EQ(resume.body.incarnation, info_.base);
  keeper_->answer(resume.request, local::Running{});
  end_copy();
  keeper_->answer(pause.request, local::Paused{});  // the answer arrives too late
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  EXPECT_EQ(count<migration::EngineFailed>(), 0);
  EXPECT_EQ(count<migration::JobPaused>(), 0);
}

TEST_F(SourceSessionTest, PauseThatTheKeeperRefusesFailsTheCopy) {
  prepare();
  session_->perform(migration::PauseJob{});
  keeper_->refuse(keeper_->receive<local::Pause>("the order to pause").request, local::MessageType::kPause,
                  Error(ErrorCode::kRefused, "another pause is under way"));
  await_one<migration::EngineFailed>("the failure");
}

TEST_F(SourceSessionTest, LossOfTheKeeperDuringThePauseEndsTheInstance) {
  prepare();
  session_->perform(migration::PauseJob{});
  keeper_->receive<local::Pause>("the order to pause");
  keeper_->go_away();
  await_one<migration::InstanceDied>("the end");
  EXPECT_EQ(count<migration::JobPaused>(), 0);
}

// ---- return to the source, and the job's departure ----

TEST_F(SourceSessionTest, JobIsRestoredInPlaceBeforeItContinues) {
  session_->perform(migration::RunInstance(1, 5000));
  const auto order = keeper_->receive<local::Resume>("the order to go on");
  EXPECT_THAT(script_.calls, ElementsAre("go back"));
  EXPECT_EQ(order.body.incarnation, 1U);
  EXPECT_EQ(order.body.deadline_ns, 5000);
  local::Running running;
  running.incarnation = 1;
  keeper_->answer(order.request, running);
  await_one<migration::InstanceRuns>("the job runs");
}

TEST_F(SourceSessionTest, RestoreInPlaceIsRetried) {
  script_.refusals_to_go_back = 1;
  session_->perform(migration::RunInstance(1, std::nullopt));
  answer_running();
  await_one<migration::InstanceRuns>("the job runs");
  EXPECT_THAT(script_.calls, ElementsAre("go back", "go back"));
}

TEST_F(SourceSessionTest, RunningSaveEndsBeforeTheRestoreInPlace) {
  script_.holds_save = true;
  prepare_and_pause();
  session_->perform(migration::RunFinalRound{});
  await_event(io_, "the save begins", [this] { return has_called("save"); });
  session_->perform(migration::RunInstance(1, std::nullopt));
  settle();
  EXPECT_FALSE(has_called("go back")) << "CRIU must not meet a process that goes on";
  script_.holds_save = false;
  script_.save_goes_on.notify();
  answer_running();
  await_one<migration::InstanceRuns>("the job runs");
}

TEST_F(SourceSessionTest, EndedJobDoesNotContinue) {
  keeper_->exit(3 << 8);
  await_event(io_, "the job ends", [this] { return job_->ended(); });
  EXPECT_EQ(count<migration::InstanceDied>(), 1);
  session_->perform(migration::RunInstance(1, std::nullopt));
  await_event(io_, "the session says so", [this] { return count<migration::InstanceDied>() == 2; });
  EXPECT_THAT(script_.calls, IsEmpty());
}

TEST_F(SourceSessionTest, JobOwnedByTheTargetIsRemovedOnceAndNotReportedAsLost) {
  session_->perform(migration::FreeSource{});
  session_->perform(migration::FreeSource{});
  await_event(io_, "the mode lets go", [this] { return has_called("let go"); });
  session_->perform(migration::RunInstance(1, std::nullopt));
  settle();
  EXPECT_THAT(script_.calls, ElementsAre("leave", "let go"));
  EXPECT_FALSE(keeper_->is_asked()) << "it must not run here again";
  keeper_->exit(0);
  await_event(io_, "the job ends", [this] { return job_->ended(); });
  EXPECT_THAT(events_.of_source, IsEmpty());
}

TEST_F(SourceSessionTest, ReasonForTheEndIsSentToTheTarget) {
  prepare();
  session_->set_failure_reason("the limit cannot be met");
  session_->perform(migration::StopCopy{});
  keeper_->answer(keeper_->receive<local::StopExport>("the export is ended").request, local::Done{});
  EXPECT_THAT(mover_->receive<mover::EndSession>("the mover's session is ended").reason,
              HasSubstr("the limit cannot be met"));
  say<mover::SessionEnded>();
}

TEST_F(SourceSessionTest, LimitsApplyToARunningCopyButNotToAStoppedCopy) {
  prepare();
  session_->set_limits(5, 7);
  const auto limits = mover_->receive<mover::MoverLimits>("the limits");
  EXPECT_EQ(limits.max_downtime_ns, 5);
  EXPECT_EQ(limits.bandwidth_bytes_per_second, 7);
  session_->perform(migration::StopCopy{});
  settle();
  session_->set_limits(6, 8);
  end_copy();
}

}  // namespace
}  // namespace ckpt::agent
