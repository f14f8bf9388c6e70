// SPDX-License-Identifier: Apache-2.0
// Tests of a job of several ranks in the table of jobs, also after a restart.
#include "coordinator/fleet/whole_job.h"

#include <gmock/gmock.h>

#include "tests/unit/coordinator/support/job_table_fixture.h"

namespace ckpt::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class GangTest : public JobTableFixture {
 protected:
  static wire::JobSpec spec(const std::string& name) {
    wire::JobSpec made;
    made.name = name;
    made.argv = {"/bin/train"};
    return made;
  }
  WholeJob create(const std::string& name, std::uint32_t ranks) {
    std::vector<Placing> placings;
    for (std::uint32_t i = 0; i < ranks; ++i) placings.push_back({Place("a", i), ""});
    return admission_->create(spec(name), placings).value();
  }
  void end(Job& rank, JobState state, int exit_code, std::int64_t ended_ms) {
    rank.state = state;
    rank.exit_code = exit_code;
    rank.ended_ms = ended_ms;
    jobs_->save(rank);
  }
};

TEST_F(GangTest, RanksAreJobsFoundByTheirGang) {
  const WholeJob gang = create("train", 2);
  ASSERT_EQ(gang.ranks.size(), 2U);
  EXPECT_EQ(gang.ranks[1]->spec.name, "train.1");
  EXPECT_EQ(gang.ranks[1]->ranks.front().place, Place("a", 1));
  EXPECT_THAT(gang.ranks[1]->spec.env, Contains("RANK=1"));
  EXPECT_THAT(gang.ranks[1]->spec.env, Contains("WORLD_SIZE=2"));
  EXPECT_EQ(find_whole(*jobs_, job_text(gang.id))->id, gang.id);
  EXPECT_EQ(jobs_->find("train"), nullptr);
  EXPECT_EQ(jobs_->find("train.1")->id, gang.ranks[1]->id);
}

TEST_F(GangTest, JobOfOneRankHasItsOwnNameAndNoVariables) {
  const WholeJob job = create("train", 1);
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0]->id, job.id);
  EXPECT_EQ(job.ranks[0]->spec.name, "train");
  EXPECT_EQ(job.ranks[0]->place(), Place("a", 0));
  EXPECT_TRUE(job.ranks[0]->spec.env.empty());
}

TEST_F(GangTest, RanksAreRemovedTogetherOrNotAtAll) {
  const WholeJob gang = create("train", 2);
  end(*gang.ranks[0], JobState::kExited, 0, 5);
  EXPECT_FALSE(job_runner_->forget(gang.ranks).has_value()) << "a rank of it runs";
  EXPECT_EQ(find_whole(*jobs_, "train")->ranks.size(), 2U);
  end(*gang.ranks[1], JobState::kExited, 0, 6);
  EXPECT_TRUE(job_runner_->forget(gang.ranks).has_value());
  EXPECT_FALSE(find_whole(*jobs_, "train").has_value());
}

TEST_F(GangTest, RanksAreFoundAfterARestart) {
  const JobId id = create("train", 3).id;
  reopen();
  const auto gang = find_whole(*jobs_, "train");
  ASSERT_TRUE(gang.has_value());
  EXPECT_EQ(gang->id, id);
  EXPECT_EQ(gang->ranks.size(), 3U);
}

TEST_F(GangTest, RankEndedOnRequestIsNotReportedAsTheFailedRank) {
  const WholeJob gang = create("train", 3);
  gang.ranks[2]->ended_on_request = true;
  end(*gang.ranks[2], JobState::kExited, 137, 1000);
  EXPECT_THAT(reason_of(gang), HasSubstr("rank 2 "));
  end(*gang.ranks[0], JobState::kExited, 134, 1040);
  EXPECT_THAT(reason_of(gang), HasSubstr("rank 0 "));
  EXPECT_EQ(exit_code_of(gang), 134);
  reopen();
  EXPECT_THAT(reason_of(find_whole(*jobs_, "train").value()), HasSubstr("rank 0 "));
}

TEST_F(GangTest, NameOfALiveGangIsRefusedForJobsAndGangs) {
  const WholeJob gang = create("train", 2);
  const wire::JobSpec one = spec("train");
  EXPECT_FALSE(admission_->create(one, {{Place("a", 0), ""}}).has_value());
  EXPECT_FALSE(admission_->create(spec("train"), {{Place("a", 0), ""}, {Place("a", 1), ""}}).has_value());
  end(*gang.ranks[0], JobState::kExited, 0, 1);
  EXPECT_FALSE(admission_->create(one, {{Place("a", 0), ""}}).has_value()) << "a rank of it runs";
  end(*gang.ranks[1], JobState::kExited, 0, 2);
  EXPECT_TRUE(admission_->create(one, {{Place("a", 0), ""}}).has_value());
}

TEST_F(GangTest, GangWithANameInUseLeavesNoRank) {
  const wire::JobSpec one = spec("train.1");
  ASSERT_TRUE(admission_->create(one, {{Place("a", 0), ""}}).has_value());
  EXPECT_FALSE(admission_->create(spec("train"), {{Place("a", 0), ""}, {Place("a", 1), ""}}).has_value());
  EXPECT_FALSE(find_whole(*jobs_, "train").has_value());
  EXPECT_EQ(jobs_->find("train.0"), nullptr);
}

TEST_F(GangTest, GangEndsAfterAllRanksAndReportsTheFirstFailedRank) {
  const WholeJob gang = create("train", 3);
  EXPECT_EQ(state_of(gang), JobState::kStarting);
  for (const Job* rank : gang.ranks) job_runner_->fact(rank->id, lifecycle::StartAnswered());
  EXPECT_EQ(state_of(gang), JobState::kRunning);
  end(*gang.ranks[2], JobState::kExited, 3, 10);
  EXPECT_EQ(state_of(gang), JobState::kRunning);
  EXPECT_EQ(first_failed(gang), gang.ranks[2]);
  end(*gang.ranks[0], JobState::kExited, 143, 20);
  end(*gang.ranks[1], JobState::kExited, 143, 21);
  EXPECT_EQ(state_of(gang), JobState::kExited);
  EXPECT_EQ(exit_code_of(gang), 3);
  EXPECT_THAT(reason_of(gang), HasSubstr("rank 2 ended with exit code 3"));
}

TEST_F(GangTest, GangExitsSuccessfullyIfAllRanksExitSuccessfully) {
  const WholeJob gang = create("train", 2);
  for (Job* rank : gang.ranks) end(*rank, JobState::kExited, 0, 5);
  EXPECT_EQ(state_of(gang), JobState::kExited);
  EXPECT_EQ(exit_code_of(gang), 0);
  EXPECT_EQ(reason_of(gang), "");
}

TEST_F(GangTest, GangIsRemovedWithItsLastRank) {
  const WholeJob gang = create("train", 2);
  for (Job* rank : gang.ranks) end(*rank, JobState::kExited, 0, 5);
  ASSERT_TRUE(jobs_->remove({gang.ranks[0]->id}));
  EXPECT_EQ(find_whole(*jobs_, "train")->ranks.size(), 1U);
  ASSERT_TRUE(jobs_->remove({find_whole(*jobs_, "train")->ranks[0]->id}));
  EXPECT_FALSE(find_whole(*jobs_, "train").has_value());
}

}  // namespace
}  // namespace ckpt::coordinator
