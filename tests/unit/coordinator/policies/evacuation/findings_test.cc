// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/findings.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

class FindingRules : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.id = 1;
    job_.state = JobState::kRunning;
    job_.incarnation = 4;
    job_.segments.emplace_back("a", 3);
    job_.ranks.emplace_back().place = Place("a", 0);
  }
  static Finding finding(std::int64_t time_ms, bool cordon, HealthOutcome outcome) {
    Finding found;
    found.node = "a";
    found.acted = true;
    found.reported.time_ms = time_ms;
    found.reported.cordon = cordon;
    found.reported.outcome = outcome;
    found.reported.reason = "Xid 79";
    return found;
  }
  static wire::JobVerdict verdict(Incarnation incarnation, HealthOutcome outcome) {
    wire::JobVerdict given;
    given.job = 1;
    given.incarnation = incarnation;
    given.outcome = outcome;
    given.reason = "its context is lost";
    return given;
  }
  static std::vector<const Finding*> standing(const std::vector<Finding>& all, bool cordoned,
                                              std::int64_t now_ms) {
    return standing_findings(
        all, [cordoned](const Place&) { return cordoned; }, now_ms);
  }

  Job job_;
};

TEST_F(FindingRules, ACordoningFindingAppliesAsLongAsItsCordon) {
  const std::vector<Finding> all{finding(1, true, HealthOutcome::kRestore)};
  EXPECT_EQ(standing(all, true, 10 * kSuspicionMs).size(), 1U);
  EXPECT_TRUE(standing(all, false, 2).empty());
}

TEST_F(FindingRules, AFindingWithoutACordonExpiresAndTheNewestApplies) {
  const std::vector<Finding> all{finding(1, false, HealthOutcome::kRestore),
                                 finding(2, false, HealthOutcome::kLive),
                                 finding(3, false, HealthOutcome::kNone)};
  ASSERT_EQ(standing(all, false, 4).size(), 1U);
  EXPECT_EQ(standing(all, false, 4).front()->reported.time_ms, 2);
  EXPECT_TRUE(standing(all, false, 3 + kSuspicionMs).empty());
}

TEST_F(FindingRules, UndecidedAndPausedFindingsDoNotApply) {
  std::vector<Finding> all{finding(1, true, HealthOutcome::kLive), finding(1, true, HealthOutcome::kLive)};
  all[0].acted = false;
  all[1].paused = true;
  EXPECT_TRUE(standing(all, true, 2).empty());
  EXPECT_FALSE(all[1].is_suspicion());
  EXPECT_TRUE(all[0].is_suspicion());
}

TEST_F(FindingRules, AVerdictAboutAnInstanceOverridesTheOutcomeOfTheGpuForThatInstance) {
  Finding found = finding(1, true, HealthOutcome::kLive);
  found.reported.jobs = {verdict(3, HealthOutcome::kRestore)};
  EXPECT_EQ(outcome_for(found.reported, job_), HealthOutcome::kRestore) << "as it was started";
  found.reported.jobs = {verdict(2, HealthOutcome::kRestore)};
  EXPECT_EQ(outcome_for(found.reported, job_), HealthOutcome::kLive);
}

TEST_F(FindingRules, AJobThatEndedIsEvacuatedOnlyIfItDiedOfTheFault) {
  Finding found = finding(100'000, true, HealthOutcome::kRestore);
  EXPECT_TRUE(evacuation_for(job_, found, 5)) << "it runs";
  job_.state = JobState::kFailed;
  job_.exit_code = 1;
  job_.ended_ms = 100'000 - 60'000;
  EXPECT_FALSE(evacuation_for(job_, found, 5)) << "it is not named";
  found.reported.jobs = {verdict(3, HealthOutcome::kRestore)};
  const auto died = evacuation_for(job_, found, 5);
  ASSERT_TRUE(died);
  EXPECT_TRUE(died->revive);
  EXPECT_EQ(died->reason, "its context is lost");
  EXPECT_EQ(died->created_ms, 5);
  --job_.ended_ms;
  EXPECT_FALSE(evacuation_for(job_, found, 5)) << "long before";
  ++job_.ended_ms;
  job_.stop_requested = true;
  EXPECT_FALSE(evacuation_for(job_, found, 5));
}

TEST_F(FindingRules, AFindingDoesNotEvacuateParkedJobsOrJobsOnOtherGpus) {
  const Finding found = finding(1, true, HealthOutcome::kLive);
  job_.state = JobState::kParked;
  EXPECT_FALSE(evacuation_for(job_, found, 5));
  job_.state = JobState::kRunning;
  job_.ranks.front().place = Place("a", 1);
  EXPECT_FALSE(evacuation_for(job_, found, 5));
}

TEST_F(FindingRules, AJobMovedToAFaultyGpuIsEvacuatedUnlessItsInstanceWasAlreadyDecided) {
  const Finding found = finding(1, true, HealthOutcome::kLive);
  auto arrived = arrival_of(job_, found, 5);
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->reason, "it was moved to a faulty GPU: Xid 79");
  arrived->state = EvacuationState::kLeft;
  EXPECT_TRUE(has_decided(*arrived, job_, found.place()));
  job_.segments.back().incarnation = 9;
  EXPECT_FALSE(has_decided(*arrived, job_, found.place())) << "another instance";
  job_.state = JobState::kRestoring;
  EXPECT_FALSE(arrival_of(job_, found, 5)) << "it is on its way out";
}

TEST_F(FindingRules, ImagesAreMarkedSuspectOncePerFinding) {
  const Finding found = finding(1, false, HealthOutcome::kRestore);
  job_.protection.emplace();
  const auto changed = doubted(job_, found);
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->doubts.size(), 1U);
  EXPECT_NE(changed->protection->error.find("Xid 79"), std::string::npos);
  EXPECT_FALSE(doubted(*changed, found));
  EXPECT_FALSE(doubted(job_, finding(1, false, HealthOutcome::kLive)));
}

TEST_F(FindingRules, AMoveToTheGpuIsCanceledWhilePossible) {
  Migration migration;
  migration.to = Place("a", 0);
  EXPECT_TRUE(is_coming(migration, Place("a", 0)));
  EXPECT_FALSE(is_coming(migration, Place("a", 1)));
  migration.abort_cause = AbortCause::kUser;
  EXPECT_FALSE(is_coming(migration, Place("a", 0)));
  migration.abort_cause = AbortCause::kNone;
  migration.phase = MigrationPhase::kCommitted;
  EXPECT_FALSE(is_coming(migration, Place("a", 0)));
}

}  // namespace
}  // namespace ckpt::coordinator
