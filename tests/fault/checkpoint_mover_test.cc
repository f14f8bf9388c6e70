// SPDX-License-Identifier: Apache-2.0
// Tests of snapshots into a checkpoint store and of restores, by mover processes. This program plays their
// agent and the job.
#include "tests/fault/checkpoint_mover.h"

namespace ckpt::engine::test {
namespace {

TEST_F(CheckpointStoreMover, ASnapshotRestoresIntoAnotherLayout) {
  const auto before = content_of(job);
  {
    MoverProcess mover(0, "a");
    Snapshot snapshot(mover, job, folder);
    snapshot.take("step 5");
    EXPECT_EQ(snapshot.done.version, 1u);
    EXPECT_EQ(snapshot.done.parent, 0u);
    EXPECT_EQ(snapshot.staged.waited_bytes, 0u);
    EXPECT_EQ(snapshot.staged.state_bytes, kWeights * 4 + kMoments * 4 + 400'000);
  }
  std::string host;
  const auto done = restore(0, &host);
  EXPECT_EQ(done.version, 1u);
  EXPECT_EQ(host, "step 5");
  EXPECT_TRUE(content_of(standby) == before);
}

TEST_F(CheckpointStoreMover, ASecondSnapshotWritesOnlyChangedChunks) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 3 * kChunk + 5, random_bytes(10, 3));
  job.write("moments", 0, random_bytes(kChunk, 4));
  const auto second = content_of(job);
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.parent, 1u);
  EXPECT_EQ(next.staged.dirty_bytes, 2 * kChunk);
  EXPECT_LT(next.done.written_bytes, 2 * kChunk + 16 * kKiB);
  EXPECT_EQ(restore(0).version, 2u);
  EXPECT_TRUE(content_of(standby) == second);
  EXPECT_EQ(restore(1).version, 1u);
  EXPECT_TRUE(content_of(standby) == first);
}

TEST_F(CheckpointStoreMover, AWriteBetweenTheFirstRoundAndTheBarrierIsInTheImage) {
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.start();
  EXPECT_GT(snapshot.ready.staged_bytes, 0u);
  job.write("weights", 7 * kChunk, random_bytes(kChunk, 5));
  const auto at_barrier = content_of(job);
  snapshot.stage();
  snapshot.send_host({});
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == at_barrier);
}

TEST_F(CheckpointStoreMover, TheJobContinuesWhileTheVersionIsWritten) {
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.start();
  const auto at_barrier = content_of(job);
  snapshot.stage();
  // The version has not been written, since the host state has not arrived. The mover still releases all
  // regions.
  mover.expect<messages::DroppedRegions>();
  job.write("weights", 0, random_bytes(kWeights * 4, 6));
  const std::uint64_t free_before = job.free_bytes();
  job.free_region(2);
  EXPECT_GE(job.free_bytes(), free_before + 8 * kMiB);
  snapshot.send_host(text("host"));
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == at_barrier);
}

TEST_F(CheckpointStoreMover, ASnapshotLargerThanStagingIsWrittenBeforeTheJobContinues) {
  const std::uint64_t big = job.add_region(64 * kMiB);
  job.add_tensor("big", big, 0, 12'000'000);
  standby.add_tensor("big", standby.add_region(64 * kMiB), 0, 12'000'000);
  job.write("big", 0, random_bytes(48'000'000, 7));
  const auto before = content_of(job);
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.request.staging_bytes = 16 * kMiB;
  snapshot.start();
  snapshot.stage();
  // The job may continue, so nothing waits any more. Everything except the last content of staging memory is
  // in the store's files by now.
  std::uint64_t stored = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) stored += entry.file_size();
  EXPECT_GE(stored + snapshot.request.staging_bytes, snapshot.staged.dirty_bytes);
  EXPECT_GT(snapshot.staged.waited_bytes, 30 * kMiB);
  job.write("big", 0, random_bytes(48'000'000, 8));
  snapshot.send_host({});
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == before);
}

TEST_F(CheckpointStoreMover, RestoreSkipsADamagedNewestVersion) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 0, random_bytes(kChunk, 9));
  Snapshot(mover, job, folder).take("two");
  damage_newest_pack();
  std::string host;
  const auto done = restore(0, &host);
  EXPECT_EQ(done.version, 1u);
  EXPECT_EQ(host, "one");
  ASSERT_EQ(done.skipped.size(), 1u);
  EXPECT_NE(done.skipped[0].find("version 2"), std::string::npos) << done.skipped[0];
  EXPECT_TRUE(content_of(standby) == first);
}

TEST_F(CheckpointStoreMover, ANewMoverCopiesAllMemoryAndStoresNoChunkTwice) {
  {
    MoverProcess mover(0, "a");
    Snapshot(mover, job, folder).take("one");
  }
  MoverProcess mover(0, "a");
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.version, 2u);
  EXPECT_EQ(next.staged.dirty_bytes, next.staged.state_bytes);
  EXPECT_LT(next.done.written_bytes, kChunk);
  EXPECT_EQ(restore(0).version, 2u);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(CheckpointStoreMover, ARemovedVersionIsNotUsedAsAParent) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  {
    auto checkpoint_store = must(checkpoint_store::CheckpointStore::open(folder, {}));
    must(checkpoint_store->remove_version("job", 1));
  }
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.parent, 0u);
  EXPECT_EQ(next.staged.dirty_bytes, next.staged.state_bytes);
  restore(0);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(CheckpointStoreMover, AnAbandonedSnapshotLeavesThePreviousVersion) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 0, random_bytes(kChunk, 10));
  Snapshot next(mover, job, folder);
  next.start();
  next.stage();
  end_session(mover, next.key());  // the host state of this snapshot never arrived
  EXPECT_EQ(restore(0).version, 1u);
  EXPECT_TRUE(content_of(standby) == first);
  Snapshot third(mover, job, folder);
  third.take("three");
  EXPECT_EQ(third.staged.dirty_bytes, kChunk);
  restore(0);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(CheckpointStoreMover, AStandbyWithOtherTensorNamesIsRefused) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  standby.tensors[0].name = "other";
  try {
    restore(0);
    FAIL() << "it was restored";
  } catch (const std::runtime_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("\"weights\""), std::string::npos) << refused.what();
  }
}

TEST_F(CheckpointStoreMover, RestoreAllocatesMemoryIfNoStandbyHasTheMemory) {
  // As in a transparent job, regions are moved as a whole.
  JobMemory whole(device(0));
  const std::uint64_t region = whole.add_region(4 * kMiB);
  whole.add_tensor("region:1", region, 0, kMiB);
  whole.write("region:1", 0, random_bytes(4 * kMiB, 11));
  MoverProcess mover(0, "a");
  Snapshot(mover, whole, folder).take("process");
  MoverProcess other(1, "b");
  const auto key = next_key();
  open_session(other, key, messages::Purpose::kRestore, true);
  messages::StartRestore start;
  start.session = key;
  start.folder = folder;
  start.image_job = "job";
  other.send(start);
  UniqueFd made_file;
  const auto made = other.expect<messages::MadeRegions>(&made_file);
  ASSERT_EQ(made.regions.size(), 1u);
  EXPECT_EQ(made.regions[0].id, region);
  other.expect<messages::RestoreDone>();
  const auto& device = test::device(1);
  const ContextScope scope(device);
  const auto memory =
      must(ImportedMemory::import(device.api(), device.device(), made_file.get(), made.regions[0].bytes));
  std::vector<std::byte> found(4 * kMiB);
  ASSERT_EQ(device.api().cuMemcpyDtoH_v2(found.data(), memory.pointer(), found.size()), CUDA_SUCCESS);
  EXPECT_TRUE(found == whole.read("region:1"));
  end_session(other, key);
}

// The mover is killed with kill -9 at each of its crash points. The previous version restores, or the new
// version where it was durable.
TEST_F(CheckpointStoreMover, AMoverCrashLeavesACompleteVersion) {
  const std::string faults = folder + ".faults";
  fs::create_directories(faults);
  Content expected;
  {
    MoverProcess mover(0, "a");
    Snapshot(mover, job, folder).take("one");
    expected = content_of(job);
  }
  std::uint64_t versions = 1;
  for (const int point : {305, 306, 307, 308}) {
    job.write("weights", 0, random_bytes(kWeights * 4, static_cast<std::uint64_t>(point)));
    std::ofstream(faults + "/mover.a.0." + std::to_string(point)) << "kill";
    MoverProcess mover(0, "a", {"CKPT_FAULT_DIR=" + faults});
    try {
      Snapshot(mover, job, folder).take("two");
      FAIL() << "the mover did not die at " << point;
    } catch (const std::runtime_error&) {
    }
    EXPECT_TRUE(mover.wait_killed());
    if (point == 308) {
      ++versions;
      expected = content_of(job);
    }
    EXPECT_EQ(restore(0).version, versions) << point;
    EXPECT_TRUE(content_of(standby) == expected) << point;
  }
  fs::remove_all(faults);
}

}  // namespace
}  // namespace ckpt::engine::test
