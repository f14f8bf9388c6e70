// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/resumes/resume_order.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using Claims = std::vector<std::pair<Place, std::uint64_t>>;

constexpr std::uint64_t kTotal = 100;
constexpr bool kNotReady = false;

// Returns a GPU whose memory that is not free belongs to its jobs.
GpuView gpu_with_free(std::uint32_t index, std::uint64_t free_bytes) {
  GpuView view;
  view.place = Place("a", index);
  view.model = "model-1";
  view.total_bytes = kTotal;
  view.free_bytes = free_bytes;
  view.shown_bytes = kTotal - free_bytes;
  return view;
}

ParkedJob parked(JobId id, std::int64_t parked_ms, std::uint64_t bytes, bool ready = true) {
  ParkedJob job;
  job.id = id;
  job.parked_ms = parked_ms;
  job.ready = ready;
  job.request.memory_bytes = bytes;
  return job;
}

JobId next_of(std::vector<ParkedJob> jobs, std::vector<GpuView> gpus) {
  const auto next = next_to_resume(std::move(jobs), std::move(gpus));
  return next ? next->id : 0;
}

TEST(ResumeOrder, LongestParkedJobResumesFirst) {
  EXPECT_EQ(next_of({parked(1, 30, 10), parked(2, 10, 10), parked(3, 20, 10)}, {gpu_with_free(0, 100)}), 2U);
  EXPECT_EQ(next_of({parked(2, 10, 10), parked(1, 10, 10)}, {gpu_with_free(0, 100)}), 1U);
  EXPECT_EQ(next_of({parked(1, 10, 50)}, {gpu_with_free(0, 49)}), 0U);
  EXPECT_EQ(next_of({parked(1, 10, 50)}, {gpu_with_free(0, 50)}), 1U);
  EXPECT_EQ(next_of({}, {gpu_with_free(0, 50)}), 0U);
}

TEST(ResumeOrder, SmallJobDoesNotOvertakeAnOlderLargeJob) {
  EXPECT_EQ(next_of({parked(1, 10, 80), parked(2, 20, 5)}, {gpu_with_free(0, 60), gpu_with_free(1, 79)}), 0U);
  EXPECT_EQ(next_of({parked(1, 10, 80), parked(2, 20, 5)}, {gpu_with_free(0, 60), gpu_with_free(1, 80)}), 1U);
}

TEST(ResumeOrder, JobWithARecentFailedAttemptKeepsItsClaim) {
  const std::vector<ParkedJob> jobs{parked(1, 10, 60, kNotReady), parked(2, 20, 41), parked(3, 30, 40)};
  EXPECT_EQ(next_of({jobs[0], jobs[1]}, {gpu_with_free(0, 100)}), 0U);
  EXPECT_EQ(next_of(jobs, {gpu_with_free(0, 100)}),
            0U);  // the second job claims the memory that the first job leaves
                  // free
}

TEST(ResumeOrder, NextJobResumesInMemoryThatNoEarlierJobHasClaimed) {
  const std::vector<ParkedJob> jobs{parked(1, 10, 60, kNotReady), parked(2, 20, 40)};
  const auto next = next_to_resume(jobs, {gpu_with_free(0, 100)});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->id, 2U);
  EXPECT_EQ(next->claims, (Claims{{Place("a", 0), 60}}));
}

TEST(ResumeOrder, ClaimsIncludeTheMargin) {
  ParkedJob first = parked(1, 10, 50, kNotReady);
  first.request.margin_bytes = 10;
  EXPECT_EQ(next_of({first, parked(2, 20, 41)}, {gpu_with_free(0, 100)}), 0U);
}

TEST(ResumeOrder, OlderJobClaimsMemoryOnlyOnSuitableGpus) {
  GpuView cordoned = gpu_with_free(1, 50);
  cordoned.closed = "cordoned";
  GpuView other_model = gpu_with_free(2, 50);
  other_model.model = "model-2";
  ParkedJob first = parked(1, 10, 80);
  first.request.same_model = true;
  first.request.preferred_model = "model-1";
  const auto next = next_to_resume({first, parked(2, 20, 40)}, {gpu_with_free(0, 50), cordoned, other_model});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->id, 2U);
  EXPECT_EQ(next->claims, (Claims{{Place("a", 0), 80}}));
}

TEST(ResumeOrder, UnplaceableJobDoesNotBlockOtherJobs) {
  GpuView shared = gpu_with_free(0, 30);
  shared.shown_bytes = 40;  // the rest of the used memory belongs to other programs
  EXPECT_EQ(next_of({parked(1, 10, 71), parked(2, 20, 30)}, {shared}), 2U);
  EXPECT_EQ(next_of({parked(1, 10, 70), parked(2, 20, 30)}, {shared}), 0U);
  shared.shown_bytes = 0;  // memory of a job that is arriving and not shown yet
  shared.promised_bytes = 10;
  shared.free_bytes = 70;
  EXPECT_EQ(next_of({parked(1, 10, 80), parked(2, 20, 30)}, {shared}), 0U);
  EXPECT_EQ(next_of({parked(1, 10, 81), parked(2, 20, 30)}, {shared}), 2U);
  EXPECT_EQ(next_of({parked(1, 10, kTotal + 1), parked(2, 20, 30)}, {gpu_with_free(0, 60)}), 2U);
}

}  // namespace
}  // namespace ckpt::coordinator
