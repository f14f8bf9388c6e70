// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_admission.h"

#include "tests/unit/coordinator/support/job_table_fixture.h"

namespace ckpt::coordinator {
namespace {

class JobTableTest : public JobTableFixture {
 protected:
  Job& create(const std::string& name) {
    wire::JobSpec spec;
    spec.name = name;
    spec.argv = {"/bin/train"};
    return *admission_->create(spec, {{Place("a", 0), ""}}).value().ranks.front();
  }
  static wire::JobInstance instance(JobId job, Incarnation incarnation, wire::JobPhase phase,
                                    int exit_code = -1) {
    wire::JobInstance i;
    i.job = job;
    i.incarnation = incarnation;
    i.phase = phase;
    i.exit_code = exit_code;
    i.movable = true;
    i.ranks.resize(1);
    i.ranks[0].state_bytes = 100;
    return i;
  }
  static Node node(const std::string& name, std::vector<wire::JobInstance> instances) {
    Node n;
    n.row.name = name;
    n.instances = std::move(instances);
    return n;
  }
};

// The source's report that the job has moved may arrive before the inventory that the target sent while the
// instance was being moved.
TEST_F(JobTableTest, InventoryOlderThanAMoveLosesNoJob) {
  Job& job = create("train");
  job_runner_->fact(job.id, lifecycle::StartAnswered());
  const Node source = node("a", {instance(job.id, 1, wire::JobPhase::kRunning)});
  job_runner_->on_inventory(source);
  const Node without = node("b", {});
  job_runner_->fact(job.id, lifecycle::MoveRunsAt{2, Segment("b", 2), {JobRank(job.ranks.front())}, {}});
  view_.closing = true;
  job_runner_->on_inventory(without);
  EXPECT_EQ(job.state, JobState::kRunning);
  view_.closing = false;
  job_runner_->on_inventory(without);
  EXPECT_EQ(job.state, JobState::kLost);
}

TEST_F(JobTableTest, DerivesANameFromTheCommand) {
  EXPECT_EQ(create("").spec.name, "train-1");
  EXPECT_EQ(create("").spec.name, "train-2");
}

TEST_F(JobTableTest, JobWithASpecAboveTheMessageLimitIsRefusedAtItsStart) {
  wire::JobSpec spec;
  spec.argv = {"/bin/train"};
  spec.ranks.resize(1);
  spec.env = {"PAD=" + std::string(wire::kMaxJobSpecBytes, 'x')};
  const auto refused = admission_->create(spec, {{Place("a", 0), ""}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().to_string().find("environment"), std::string::npos);
  spec.env = {"PAD=" + std::string(wire::kMaxJobSpecBytes - 4096, 'x')};
  EXPECT_TRUE(admission_->create(spec, {{Place("a", 0), ""}}));
}

TEST_F(JobTableTest, ExitOfAnInstanceIsHandledAfterTheMigration) {
  Job& job = create("x");
  job_runner_->fact(job.id, lifecycle::StartAnswered());
  view_.open.emplace();
  const Node a = node("a", {instance(job.id, 1, wire::JobPhase::kExited, 7)});
  job_runner_->on_inventory(a);
  EXPECT_EQ(job.state, JobState::kRunning);
  job_runner_->on_inventory(node("a", {}));  // the job is not lost here either
  EXPECT_EQ(job.state, JobState::kRunning);
  view_.open.reset();
  job_runner_->reevaluate(job.id, &a);
  EXPECT_EQ(job.state, JobState::kExited);
  EXPECT_EQ(job.exit_code, 7);
}

TEST_F(JobTableTest, OtherInstancesAreIgnored) {
  Job& job = create("x");
  job_runner_->fact(job.id, lifecycle::StartAnswered());
  job_runner_->on_inventory(node("b", {instance(job.id, 1, wire::JobPhase::kExited, 7)}));
  job_runner_->on_inventory(node(
      "a", {instance(job.id, 1, wire::JobPhase::kRunning), instance(job.id, 2, wire::JobPhase::kExited, 7)}));
  EXPECT_EQ(job.state, JobState::kRunning);
}

TEST_F(JobTableTest, AMissingStartingJobIsStartedAgain) {
  const Job& job = create("x");
  EXPECT_EQ(job_runner_->on_inventory(node("a", {})), std::vector<JobId>{job.id});
  EXPECT_EQ(job.state, JobState::kStarting);
}

TEST_F(JobTableTest, RecordsAMoveInBothDirections) {
  Job& job = create("x");
  job_runner_->fact(job.id, lifecycle::StartAnswered());
  job_runner_->on_inventory(node("a", {instance(job.id, 1, wire::JobPhase::kRunning)}));
  JobRank there;
  there.place = Place("b", 1);
  job_runner_->fact(job.id, lifecycle::MoveRunsAt{2, Segment("b", 2), {there}, {}});
  EXPECT_EQ(job.node(), "b");
  EXPECT_EQ(job.incarnation, 2U);
  EXPECT_EQ(job.state_bytes(), 100U);  // the size is known before the new instance has been described
  EXPECT_TRUE(job.movable);
  EXPECT_EQ(job.segments.size(), 2U);
  JobRank back;
  back.place = Place("a", 0);
  job_runner_->fact(
      // The job is restored: the first instance continues.
      job.id, lifecycle::MoveRunsAt{3, Segment("a", 1), {back}, {}});
  EXPECT_EQ(job.segments, std::vector<Segment>{Segment("a", 1)});
  EXPECT_EQ(job.incarnation, 3U);
}

TEST_F(JobTableTest, AShortIdSelectsTheOnlyJobWithThatNumber) {
  ASSERT_TRUE(store_->draw_id_tag());
  const JobId id = create("").id;
  const std::string text = job_text(id);
  EXPECT_TRUE(text.starts_with("j1-")) << text;
  EXPECT_EQ(jobs_->find(text)->spec.name, "train-1");
  ASSERT_NE(jobs_->find("j1"), nullptr);
  EXPECT_EQ(jobs_->find("j1")->id, id);
  EXPECT_EQ(jobs_->find("j1-0001"), nullptr);
  EXPECT_EQ(jobs_->not_found("j2").message(), "There is no job \"j2\"");
}

TEST_F(JobTableTest, ADerivedNameInUseIsExtendedByTheJobId) {
  ASSERT_TRUE(store_->draw_id_tag());
  create("train-2");
  const Job& job = create("");
  EXPECT_EQ(job.spec.name, "train-" + job_text(job.id).substr(1));
}

TEST_F(JobTableTest, PrunesTheOldestEndedJobs) {
  for (int i = 0; i < 4; ++i)
    job_runner_->fact(create("x").id, lifecycle::StartAnswered{Error(ErrorCode::kNotFound, "no such file")});
  const Job& live = create("live");
  EXPECT_EQ(job_runner_->prune(Retention(2)), (std::vector<JobId>{1, 2}));
  EXPECT_TRUE(jobs_->was_forgotten(1));
  EXPECT_FALSE(jobs_->was_forgotten(3));
  EXPECT_FALSE(jobs_->was_forgotten(live.id));
  EXPECT_FALSE(jobs_->was_forgotten(99));  // an id that this cluster has never used
  reopen();
  EXPECT_TRUE(jobs_->was_forgotten(1));
  EXPECT_EQ(jobs_->find("x")->id, 4U);
  EXPECT_EQ(create("new").id, 6U);
}

TEST_F(JobTableTest, FenceOfARestoredJobOutlivesTheJob) {
  Job& restored = create("restored");
  const Job& plain = create("plain");
  const JobId plain_id = plain.id;
  restored.state = JobState::kExited;
  restored.fenced = 3;
  const JobId id = restored.id;
  jobs_->save(restored);
  EXPECT_EQ(jobs_->fenced_of_removed(id), 0U) << "it exists";
  ASSERT_TRUE(jobs_->remove({id, plain_id}));
  EXPECT_EQ(jobs_->fenced_of_removed(id), 3U);
  reopen();
  EXPECT_EQ(jobs_->fenced_of_removed(id), 3U);
  EXPECT_EQ(jobs_->fenced_of_removed(plain_id), 0U);
}

TEST_F(JobTableTest, FenceOfAnOldJobIsKeptIfTheJobIsRemovedLast) {
  Job& old = create("old");
  old.state = JobState::kExited;
  old.fenced = 3;
  const JobId id = old.id;
  jobs_->save(old);
  Store::Fences later;
  for (JobId job = 100; job < 100 + Store::kMaxFences; ++job) later.emplace_back(job, 2);
  ASSERT_TRUE(store_->remove_jobs({}, later));
  reopen();
  EXPECT_EQ(jobs_->fenced_of_removed(100), 2U);
  ASSERT_TRUE(jobs_->remove({id}));
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(jobs_->fenced_of_removed(id), 3U);
    EXPECT_EQ(jobs_->fenced_of_removed(100), 0U) << "it was removed first";
    EXPECT_EQ(jobs_->fenced_of_removed(101), 2U);
    reopen();
  }
}

TEST_F(JobTableTest, MemoryOfManyJobsIsStoredInOneTransaction) {
  std::vector<wire::JobInstance> instances;
  for (int i = 0; i < 200; ++i) {
    Job& job = create("");
    job_runner_->fact(job.id, lifecycle::StartAnswered());
    instances.push_back(instance(job.id, 1, wire::JobPhase::kRunning));
  }
  job_runner_->on_inventory(node("a", instances));
  for (wire::JobInstance& i : instances) i.ranks[0].device_bytes = 1 << 20;
  const std::uint64_t before = store_->database().commits();
  job_runner_->on_inventory(node("a", instances));
  EXPECT_EQ(store_->database().commits(), before) << "an inventory that brings nothing but memory";
  ASSERT_TRUE(jobs_->store_unsaved());
  EXPECT_EQ(store_->database().commits(), before + 1);
  ASSERT_TRUE(jobs_->store_unsaved());
  EXPECT_EQ(store_->database().commits(), before + 1) << "nothing is left to store";
  const JobId last = instances.back().job;
  reopen();
  EXPECT_EQ(jobs_->find(last)->memory.peak(), 1U << 20);
}

TEST_F(JobTableTest, ANameSelectsTheLiveJobOrElseTheNewestEndedJob) {
  const auto end = [&](Job& job) {
    job_runner_->fact(job.id, lifecycle::StartAnswered());
    job_runner_->on_inventory(node("a", {instance(job.id, 1, wire::JobPhase::kExited, 0)}));
  };
  Job& first = create("train");
  const JobId oldest = first.id;
  EXPECT_EQ(jobs_->find("train")->id, oldest);
  end(first);
  end(create("train"));
  EXPECT_EQ(jobs_->find("train")->id, oldest + 1);
  Job back = *jobs_->find(oldest);
  back.state = JobState::kRunning;  // the job continues from an image
  ASSERT_TRUE(jobs_->replace(std::move(back)));
  EXPECT_EQ(jobs_->find("train")->id, oldest);
  EXPECT_EQ(jobs_->live().size(), 1U);
  job_runner_->prune(Retention(0));
  EXPECT_EQ(jobs_->all().size(), 1U);
  reopen();
  EXPECT_EQ(jobs_->find("train")->id, oldest);
  EXPECT_GT(create("train2").id, oldest + 1);
}

TEST_F(JobTableTest, EndedJobsArePrunedByNumberOrByAge) {
  for (int i = 0; i < 5; ++i) {
    Job& job = create("");
    job_runner_->fact(job.id, lifecycle::StartAnswered());
    job_runner_->on_inventory(node("a", {instance(job.id, 1, wire::JobPhase::kExited, 0)}));
  }
  Job& running = create("");
  EXPECT_EQ(job_runner_->prune(Retention(3)), (std::vector<JobId>{1, 2}));
  EXPECT_TRUE(job_runner_->prune(Retention(3)).empty());
  const std::int64_t after_all = jobs_->newest_end_ms() + 1;
  EXPECT_EQ(job_runner_->prune(Retention(3, after_all)), (std::vector<JobId>{3, 4, 5}));
  EXPECT_EQ(jobs_->all().size(), 1U);
  EXPECT_NE(jobs_->find(running.id), nullptr);
}

// A fact counts although the store refuses it, and is stored later. An order does not count until it is
// stored.
TEST_F(JobTableTest, FailedStoreWriteRefusesOrdersAndStoresFactsLater) {
  Job& job = create("x");
  job_runner_->fact(job.id, lifecycle::StartAnswered());
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only = 1"));
  EXPECT_FALSE(job_runner_->order(job.id, lifecycle::Stop{5}));
  EXPECT_FALSE(job.stop_requested);
  job_runner_->on_inventory(node("a", {instance(job.id, 1, wire::JobPhase::kExited, 7)}));
  EXPECT_EQ(job.state, JobState::kExited);
  EXPECT_TRUE(jobs_->is_refused(job.id));
  EXPECT_FALSE(job_runner_->order(job.id, lifecycle::Stop{5}))
      << "it would rest on a fact that is not stored";
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only = 0"));
  ASSERT_TRUE(jobs_->store_unsaved());
  EXPECT_FALSE(jobs_->has_refused_facts());
  const JobId id = job.id;
  reopen();
  EXPECT_EQ(jobs_->find(id)->exit_code, 7);
}

TEST_F(JobTableTest, StopOfAParkedJobThatCannotBeStoredIsAnError) {
  Job& job = create("x");
  job.state = JobState::kParked;
  jobs_->save(job);
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only = 1"));
  EXPECT_FALSE(job_runner_->order(job.id, lifecycle::Stop{5}));
  EXPECT_EQ(job.state, JobState::kParked);
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only = 0"));
}

// If a coordinator exited between two writes, the next coordinator would start the job's program from the
// command.
TEST_F(JobTableTest, RevivedJobIsParkedFromItsFirstWrite) {
  wire::JobSpec spec;
  spec.name = "back";
  spec.argv = {"/bin/train"};
  spec.ranks.resize(1);
  const std::uint64_t before = store_->database().commits();
  ASSERT_TRUE(admission_->revive(spec, Place("a", 0), "j9.v1@b", 1000));
  EXPECT_LE(store_->database().commits(), before + 2) << "its id and its row";
  reopen();
  EXPECT_EQ(jobs_->find("back")->state, JobState::kParked);
}

}  // namespace
}  // namespace ckpt::coordinator
