// SPDX-License-Identifier: Apache-2.0
// Tests of the checkpoint and restore of another process: the rules of cuda.h, and the results measured on an
// H200 (driver 580, tools/probe).
#include <poll.h>
#include <unistd.h>

#include "tests/conformance/checkpoint/checkpoint_support.h"

namespace conformance {
namespace {

TEST_F(CheckpointTest, CheckpointStatesChangeInOrderAndTheProgramContinues) {
  EXPECT_EQ(CU_PROCESS_STATE_RUNNING, state());
  ASSERT_OK(lock());
  EXPECT_EQ(CU_PROCESS_STATE_LOCKED, state());
  ASSERT_OK(checkpoint());
  EXPECT_EQ(CU_PROCESS_STATE_CHECKPOINTED, state());
  ASSERT_OK(restore());
  EXPECT_EQ(CU_PROCESS_STATE_LOCKED, state());
  ASSERT_OK(unlock());
  EXPECT_EQ(CU_PROCESS_STATE_RUNNING, state());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, AProgramCanBeCheckpointedRepeatedly) {
  for (int i = 0; i < 3; i++) {
    ASSERT_OK(lock());
    ASSERT_OK(checkpoint());
    ASSERT_OK(restore());
    ASSERT_OK(unlock());
    EXPECT_TRUE(job_->does("check"));
  }
}

TEST_F(CheckpointTest, EachStepIsRefusedInAWrongState) {
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, unlock());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, checkpoint());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, restore());
  ASSERT_OK(lock());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, lock());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, restore());
  ASSERT_OK(checkpoint());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, lock());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, checkpoint());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, unlock());
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, ALockedProgramContinuesAfterUnlock) {
  ASSERT_OK(lock());
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, CudaCallsOfALockedProgramBlockUntilUnlock) {
  ASSERT_OK(lock());
  job_->child.send_text("check");
  EXPECT_FALSE(job_->answers_within(200));
  ASSERT_OK(checkpoint());
  ASSERT_OK(restore());
  EXPECT_FALSE(job_->answers_within(50));
  ASSERT_OK(unlock());
  EXPECT_EQ("ok", job_->child.receive_text());
}

TEST_F(CheckpointTest, ALockThatTimesOutLeavesTheProgramRunning) {
  ASSERT_TRUE(job_->does("hold up"));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, lock(100));
  EXPECT_EQ(CU_PROCESS_STATE_RUNNING, state());
  ASSERT_TRUE(job_->does("let go"));
  ASSERT_OK(lock(60000));
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, TheRestoreThreadIsAThreadOfTheProgram) {
  int thread = 0;
  ASSERT_OK(api().cuCheckpointProcessGetRestoreThreadId(job_->child.pid(), &thread));
  const std::string path =
      "/proc/" + std::to_string(job_->child.pid()) + "/task/" + std::to_string(thread) + "/comm";
  EXPECT_EQ(0, ::access(path.c_str(), F_OK)) << path;
}

TEST_F(CheckpointTest, ACheckpointFreesTheDeviceMemoryOfTheProgram) {
  ASSERT_OK(lock());
  const std::size_t before = free_memory();
  ASSERT_OK(checkpoint());
  EXPECT_TRUE(comes_back(before + 64 * kMiB));
  ASSERT_OK(restore());
  EXPECT_LE(free_memory() + 64 * kMiB, before + 64 * kMiB + 8 * kMiB);
  ASSERT_OK(unlock());
}

TEST_F(CheckpointTest, MappedMemoryThatWasNeverExportedIsRestored) {
  ASSERT_TRUE(job_->does("make region"));
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, ReleasedMemoryHeldByAnotherProcessIsRestoredAtItsAddress) {
  ASSERT_TRUE(job_->does("make region"));
  job_->child.send_text("export");
  int fd = -1;
  ASSERT_EQ("ok", job_->child.receive_text(&fd));
  ASSERT_TRUE(job_->does("close export"));
  ASSERT_TRUE(job_->does("release"));
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(api().cuMemImportFromShareableHandle(&handle,
                                                   reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    Mapped meanwhile(handle, 4 * kMiB);
    EXPECT_EQ(51U, read_words(meanwhile.address + 4, 1)[0]);
    int again = -1;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemExportToShareableHandle(
                                              &again, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
  ASSERT_OK(restore());
  ASSERT_OK(unlock());
  job_->child.send_text("import", fd);
  ::close(fd);
  EXPECT_EQ("ok", job_->child.receive_text());
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, RefusesAProcessThatExitedOrUsesNoCuda) {
  Child ended("uninitialized");
  const pid_t pid = ended.pid();
  EXPECT_EQ(0, ended.wait());
  CUprocessState state{};
  EXPECT_NE(CUDA_SUCCESS, api().cuCheckpointProcessGetState(pid, &state));
  EXPECT_NE(CUDA_SUCCESS, api().cuCheckpointProcessLock(pid, nullptr));
  int thread = 0;
  EXPECT_NE(CUDA_SUCCESS, api().cuCheckpointProcessGetRestoreThreadId(1, &thread));
}

TEST_F(CheckpointTest, TheProgramContinuesOnAnotherDevice) {
  if (!two_devices()) GTEST_SKIP() << "one device";
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  std::vector<CUcheckpointGpuPair> pairs = exchanged_devices();
  const std::size_t before = free_memory();
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, restore({pairs[1]}));  // every device must be named
  EXPECT_EQ(CU_PROCESS_STATE_CHECKPOINTED, state());
  ASSERT_OK(restore(pairs));
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("check"));
  EXPECT_GE(free_memory() + kMiB, before);  // the job's memory is on the other device
  ASSERT_TRUE(job_->does("make region"));
  ASSERT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, PeerAccessBetweenDevicesSurvivesACheckpoint) {
  int can = 0;
  if (!two_devices()) GTEST_SKIP() << "one device";
  ASSERT_OK(api().cuDeviceCanAccessPeer(&can, 1, 0));
  if (can == 0) GTEST_SKIP() << "no peer access";
  ASSERT_TRUE(job_->does("make peer"));
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  ASSERT_OK(restore(exchanged_devices()));
  ASSERT_OK(unlock());
  EXPECT_TRUE(job_->does("use peer"));
  EXPECT_TRUE(job_->does("check"));
}

// Threads on all devices launch, copy, allocate, load, and run graphs and host functions all the time.
TEST_F(CheckpointTest, ABusyProgramIsCheckpointedAndRestoredOnExchangedDevices) {
  ASSERT_TRUE(job_->does("work"));
  for (int i = 0; i < 12; i++) {
    ASSERT_OK(lock());
    ASSERT_OK(checkpoint());
    // The process moves back and forth: after the first time its devices are exchanged.
    std::vector<CUcheckpointGpuPair> pairs;
    if (two_devices() && i % 2 == 0) pairs = exchanged_devices();
    if (two_devices() && i % 3 == 0) pairs.clear();
    ASSERT_OK(restore(pairs));
    ASSERT_OK(unlock());
  }
  EXPECT_TRUE(job_->does("stop working"));
  EXPECT_TRUE(job_->does("check"));
}

TEST_F(CheckpointTest, ARestoreThatRunsOutOfMemoryCannotBeRepeated) {
  ASSERT_OK(lock());
  ASSERT_OK(checkpoint());
  std::vector<CUdeviceptr> filling;
  for (std::size_t bytes = std::size_t{1} << 36; bytes >= 2 * kMiB;) {
    CUdeviceptr memory = 0;
    if (api().cuMemAlloc_v2(&memory, bytes) == CUDA_SUCCESS)
      filling.push_back(memory);
    else
      bytes /= 2;
  }
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, restore());
  for (const CUdeviceptr memory : filling) EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_NE(CUDA_SUCCESS, restore());
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, unlock());
}

}  // namespace
}  // namespace conformance
