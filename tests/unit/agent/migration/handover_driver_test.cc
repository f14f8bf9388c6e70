// SPDX-License-Identifier: Apache-2.0
// Tests of the driver of the handover machines, with a real journal and effects that are only recorded.
#include "agent/migration/handover_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

using migration::HandoverInfo;
using migration::HandoverKey;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Not;
using wire::Role;

constexpr wire::MigrationId kMigration = 7;
constexpr wire::JobId kJob = 3;
constexpr wire::Incarnation kBase = 1;
constexpr HandoverKey kSource{kMigration, Role::kSource};
constexpr HandoverKey kTarget{kMigration, Role::kTarget};

class Notes : public HandoverEffects {
 public:
  void send(const HandoverKey&, const HandoverInfo&, const wire::CommitMessage& message) override {
    lines.push_back("send " + std::string(wire::name_of(message.body)) + " to " +
                    std::string(wire::to_string(message.to.role)));
  }
  void report(const HandoverKey&, const HandoverInfo&, const migration::Report&) override {}
  void perform(const HandoverKey&, const HandoverInfo&, const migration::Action& action) override {
    const std::string line = migration::describe(action);
    lines.push_back("do " + line.substr(0, line.find_first_of(" (")));
  }
  [[nodiscard]] bool has(const std::string& line) const { return count(line) > 0; }
  [[nodiscard]] long count(const std::string& line) const {
    return std::count(lines.begin(), lines.end(), line);
  }
  [[nodiscard]] long position(const std::string& line) const {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
  }
  std::vector<std::string> lines;
};

// One life of an agent: a driver over the journal of the folder. A second object after the first is a
// restart.
struct Life {
  explicit Life(const std::string& journal_path) {
    auto journal = migration::Journal::open(journal_path);
    if (!journal) ADD_FAILURE() << journal.error().to_string();
    driver.emplace(io, disk, *std::move(journal), migration::Timing{}, notes,
                   [this](const Error& error) { fatal.push_back(error); });
    EXPECT_TRUE(run_until_done(io, driver->restore()));
  }
  ~Life() { disk.join(); }
  void hear(Role to, wire::Body body, Role from = Role::kCoordinator) {
    driver->on_message(wire::CommitMessage(kMigration, kJob, kBase, from, to, std::move(body)));
  }
  void until(const std::string& line) {
    run_until(io, [&] { return notes.has(line); });
    EXPECT_TRUE(notes.has(line)) << line << " did not happen, but " << ::testing::PrintToString(notes.lines);
  }
  void hear_prepare(Role to) { hear(to, wire::Body(wire::Prepare({}, wire::Bytes(4)))); }

  asio::io_context io;
  asio::thread_pool disk{1};
  Notes notes;
  std::vector<Error> fatal;
  std::optional<HandoverDriver> driver;
};

// Drives the source up to BARRIER.
void go_to_barrier(Life& agent) {
  agent.hear_prepare(Role::kSource);
  agent.until("do prepare-source");
  agent.driver->on_event(kSource, migration::SourceEvent(migration::SourceReady(wire::Bytes{})));
  agent.hear(Role::kSource, wire::Body(wire::Start(wire::Bytes{})));
  agent.until("do start-precopy");
  agent.driver->on_event(kSource, migration::SourceEvent(migration::FirstRoundDone{}));
  agent.driver->on_event(kSource, migration::SourceEvent(migration::PrecopyConverged{}));
  agent.hear(Role::kSource, wire::Body(wire::Granted(kBase + 1)));
  agent.until("do pause-job");
  agent.driver->on_event(kSource, migration::SourceEvent(migration::JobPaused{}));
  agent.until("do release-manifest");
}

// Drives the target up to COMMITTED.
void go_to_commit(Life& agent) {
  agent.hear_prepare(Role::kTarget);
  agent.until("do prepare-standby");
  agent.driver->on_event(kTarget, migration::TargetEvent(migration::StandbyReady(wire::Bytes{})));
  agent.hear(Role::kTarget, wire::Body(wire::Start(wire::Bytes{})));
  agent.until("do start-receiving");
  agent.hear(Role::kTarget, wire::Body(wire::Commit(kBase + 1)));
  agent.until("send LeaseRequest to coordinator");
  const auto* state = agent.driver->handovers().target(kMigration);
  ASSERT_NE(state, nullptr);
  ASSERT_FALSE(state->lease.asked.empty());
  agent.hear(Role::kTarget, wire::Body(wire::Lease(kBase + 1, state->lease.asked.back(), 60000)));
  agent.driver->on_event(kTarget, migration::TargetEvent(migration::FinalVerified{}));
  agent.until("send Committed to source");
}

class HandoverDriverTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<migration::RecordKind> recorded() const {
    auto journal = migration::Journal::open(folder_ / "journal");
    std::vector<migration::RecordKind> kinds;
    if (!journal) return kinds;
    for (const auto& record : journal->records()) kinds.push_back(record.kind);
    return kinds;
  }
  TemporaryFolder folder_;
};

TEST_F(HandoverDriverTest, TheSourcePassesAllStepsUntilReleased) {
  {
    Life agent(folder_ / "journal");
    go_to_barrier(agent);
    EXPECT_LT(agent.notes.position("do run-final-round"), agent.notes.position("do release-manifest"));
    agent.hear(Role::kSource, wire::Body(wire::Ran(kBase + 1)), Role::kTarget);
    agent.until("do free-source");
    EXPECT_TRUE(agent.notes.has("send Released to coordinator"));
    EXPECT_TRUE(agent.notes.has("send Released to target"));
  }
  EXPECT_THAT(recorded(),
              ::testing::ElementsAre(migration::RecordKind::kBarrier, migration::RecordKind::kReleased));
}

TEST(AgentHandovers, LeaseIsRenewedThreeTimesPerCoordinatorTerm) {
  migration::AgentHandovers handovers{migration::Timing{}};
  handovers.set_lease_term(900);
  const migration::Record committed(HandoverInfo(kMigration, kJob, kBase, {}, {}), Role::kTarget,
                                    migration::RecordKind::kCommitted, kBase + 1);
  auto batches = handovers.restore(std::span(&committed, 1), now_ns());
  ASSERT_TRUE(batches);
  std::vector<std::uint32_t> renewals;
  for (const migration::Batch& batch : *batches)
    for (const migration::Action& action : batch.actions)
      if (const auto* timer = std::get_if<migration::ArmTimer>(&action);
          timer != nullptr && timer->timer == migration::Timer::kLease)
        renewals.push_back(timer->ms);
  EXPECT_THAT(renewals, ::testing::ElementsAre(300U));
}

TEST_F(HandoverDriverTest, TargetReportsRunsAfterTheCommitIsRecorded) {
  {
    Life agent(folder_ / "journal");
    go_to_commit(agent);
    EXPECT_LT(agent.notes.position("do run-instance"), agent.notes.position("send Committed to source"));
    EXPECT_FALSE(agent.notes.has("send Ran to source"));
    agent.driver->on_event(kTarget, migration::TargetEvent(migration::InstanceRuns(kBase + 1)));
    agent.until("send Ran to source");
  }
  EXPECT_THAT(recorded(), ::testing::ElementsAre(migration::RecordKind::kCommitted));
}

TEST_F(HandoverDriverTest, SourceForgetsTheMigrationIfItsAgentRestartsBeforeTheBarrier) {
  {
    Life agent(folder_ / "journal");
    agent.hear_prepare(Role::kSource);
    agent.until("do prepare-source");
  }
  Life agent(folder_ / "journal");
  EXPECT_TRUE(agent.driver->handovers().may_run_freely(kJob, kBase));
  EXPECT_EQ(agent.driver->handovers().source(kMigration), nullptr);
}

TEST_F(HandoverDriverTest, SourceQueriesBothSidesIfItsAgentRestartsAtTheBarrier) {
  {
    Life agent(folder_ / "journal");
    go_to_barrier(agent);
  }
  Life agent(folder_ / "journal");
  EXPECT_FALSE(agent.driver->handovers().may_run_freely(kJob, kBase));
  EXPECT_TRUE(agent.notes.has("send Query to coordinator"));
  EXPECT_FALSE(agent.notes.has("do run-instance"));
  agent.hear(Role::kSource, wire::Body(wire::Relinquished(wire::Reason(ErrorCode::kAborted, "gone"))),
             Role::kTarget);
  agent.until("do run-instance");
  EXPECT_TRUE(agent.driver->handovers().may_run_freely(kJob, kBase));
}

TEST_F(HandoverDriverTest, SourceFreesItsMemoryAgainIfItsAgentRestartsAfterReleased) {
  {
    Life agent(folder_ / "journal");
    go_to_barrier(agent);
    agent.hear(Role::kSource, wire::Body(wire::Ran(kBase + 1)), Role::kTarget);
    agent.until("do free-source");
  }
  Life agent(folder_ / "journal");
  EXPECT_TRUE(agent.notes.has("do free-source"));
  EXPECT_FALSE(agent.notes.has("do run-instance"));
  EXPECT_FALSE(agent.driver->handovers().may_run_freely(kJob, kBase));
  EXPECT_TRUE(agent.driver->handovers().may_run_freely(kJob, kBase + 2)) << "it came back from an image";
}

TEST_F(HandoverDriverTest, TargetRefusesPermanentlyIfItsAgentRestartsBeforeCommitted) {
  {
    Life agent(folder_ / "journal");
    agent.hear_prepare(Role::kTarget);
    agent.until("do prepare-standby");
  }
  {
    Life agent(folder_ / "journal");
    agent.hear(Role::kTarget, wire::Body(wire::Commit(kBase + 1)));
    agent.until("send Relinquished to coordinator");
  }
  EXPECT_THAT(recorded(), Contains(migration::RecordKind::kRelinquished));
  Life agent(folder_ / "journal");
  agent.hear_prepare(Role::kTarget);
  agent.hear(Role::kTarget, wire::Body(wire::Query{}));
  run_until(agent.io, [&] { return agent.notes.count("send Relinquished to coordinator") >= 2; });
  EXPECT_FALSE(agent.notes.has("do prepare-standby"));
}

TEST_F(HandoverDriverTest, TargetWaitsForItsLeaseIfItsAgentRestartsAfterCommitted) {
  {
    Life agent(folder_ / "journal");
    go_to_commit(agent);
  }
  Life agent(folder_ / "journal");
  EXPECT_FALSE(agent.notes.has("do run-instance"));
  EXPECT_TRUE(agent.notes.has("send LeaseRequest to coordinator"));
  const auto* state = agent.driver->handovers().target(kMigration);
  ASSERT_NE(state, nullptr);
  agent.hear(Role::kTarget, wire::Body(wire::Lease(kBase + 1, state->lease.asked.back(), 60000)));
  agent.until("do run-instance");
}

TEST_F(HandoverDriverTest, UnansweredMessagesAreResentOnReconnect) {
  {
    Life agent(folder_ / "journal");
    go_to_commit(agent);
  }
  Life agent(folder_ / "journal");
  EXPECT_EQ(agent.notes.count("send LeaseRequest to coordinator"), 1);
  agent.driver->ask_again();
  run_until(agent.io, [&] { return agent.notes.count("send LeaseRequest to coordinator") == 2; });
}

TEST_F(HandoverDriverTest, UnexpectedEventChangesNothing) {
  Life agent(folder_ / "journal");
  agent.driver->on_event(kSource, migration::SourceEvent(migration::JobPaused{}));
  agent.hear_prepare(Role::kSource);
  agent.until("do prepare-source");
  EXPECT_TRUE(agent.fatal.empty());
}

// A limit that keeps files from growing from here on: a full disk for the journal.
class FullDisk {
 public:
  explicit FullDisk(rlim_t max_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{max_bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

TEST_F(HandoverDriverTest, AFullDiskRefusesAMigrationBeforeAnyChange) {
  Life agent(folder_ / "journal");
  const FullDisk full(1);
  agent.hear_prepare(Role::kSource);
  agent.until("send Refused to coordinator");
  EXPECT_FALSE(agent.notes.has("do prepare-source"));
  EXPECT_TRUE(agent.fatal.empty());
  EXPECT_TRUE(agent.driver->handovers().may_run_freely(kJob, kBase));
}

// A node sends as many messages as it can about migrations in which it takes part.
TEST_F(HandoverDriverTest, FloodForAKnownMigrationIsBoundedAndAnotherMigrationContinues) {
  constexpr wire::MigrationId kFlooded = 5;
  constexpr wire::JobId kOtherJob = 4;
  const auto flooded = [](wire::MigrationId id, wire::Body body) {
    return wire::CommitMessage(id, kOtherJob, kBase, Role::kCoordinator, Role::kSource, std::move(body));
  };
  {
    Life agent(folder_ / "journal");
    agent.driver->on_message(flooded(kFlooded, wire::Body(wire::Prepare({}, wire::Bytes(4)))));
    agent.until("do prepare-source");
    agent.notes.lines.clear();
    agent.hear_prepare(Role::kTarget);  // the event waits for the disk, since the loop does not run
    constexpr int kFlood = 100'000;
    for (int i = 0; i < kFlood; ++i) agent.driver->on_message(flooded(kFlooded, wire::Body(wire::Query{})));
    EXPECT_EQ(agent.driver->waiting(), HandoverDriver::kMaxOfMigration);
    // The agent's own events and messages of another migration are still queued.
    agent.driver->on_event({kFlooded, Role::kSource},
                           migration::SourceEvent(migration::SourceReady(wire::Bytes{})));
    agent.until("do prepare-standby");
    agent.until("send Prepared to coordinator");
  }
  EXPECT_THAT(recorded(), ::testing::IsEmpty());
}

TEST(LogThrottle, ReportsPeriodicallyHowManyMessagesWereOmitted) {
  LogThrottle rarely;
  EXPECT_EQ(rarely.turn(0), 0u);
  EXPECT_EQ(rarely.turn(1), std::nullopt);
  EXPECT_EQ(rarely.turn(LogThrottle::kApart - 1), std::nullopt);
  EXPECT_EQ(rarely.turn(LogThrottle::kApart), 2u);
  EXPECT_EQ(rarely.turn(LogThrottle::kApart + 1), std::nullopt);
}

}  // namespace
}  // namespace ckpt::agent
