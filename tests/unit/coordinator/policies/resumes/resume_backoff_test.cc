// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/resumes/resume_backoff.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

Job parked_at(std::int64_t now_ms) {
  Job job;
  job.id = 1;
  job.state = JobState::kParked;
  job.resumes_itself = true;
  job.parked_ms = now_ms;
  return job;
}

TEST(ResumeBackoff, AParkedJobIsResumedOnlyAfterAMinimumTime) {
  const ResumeBackoff backoff;
  EXPECT_FALSE(backoff.is_ready(parked_at(1'000), 3'999, 0));
  EXPECT_TRUE(backoff.is_ready(parked_at(1'000), 4'000, 0));
}

TEST(ResumeBackoff, EachFailureDoublesTheDelayUpToTheLastAttempt) {
  ResumeBackoff backoff;
  const Job job = parked_at(0);
  for (unsigned failed = 1; failed < ResumeBackoff::kMaxFailures; ++failed) {
    EXPECT_FALSE(backoff.note_failure(1, true, 0));
    const std::int64_t until = 1'000 * (std::int64_t{1} << failed);
    EXPECT_FALSE(backoff.is_ready(job, 10'000, until - 1));
    EXPECT_TRUE(backoff.is_ready(job, 10'000, until));
  }
  EXPECT_TRUE(backoff.note_failure(1, true, 0));
  EXPECT_FALSE(backoff.note_failure(1, true, 0)) << "it was forgotten";
}

TEST(ResumeBackoff, SuccessResetsTheFailures) {
  ResumeBackoff backoff;
  EXPECT_FALSE(backoff.note_failure(1, true, 0));
  backoff.note_success(1);
  EXPECT_TRUE(backoff.is_ready(parked_at(0), 10'000, 0));
}

TEST(ResumeBackoff, FailuresAreNotCountedForAJobThatIsNoLongerParked) {
  ResumeBackoff backoff;
  for (unsigned i = 0; i < 2 * ResumeBackoff::kMaxFailures; ++i)
    EXPECT_FALSE(backoff.note_failure(1, false, 0));
}

TEST(ResumeBackoff, OnlyAParkedJobWithoutAnOperationResumesAutomatically) {
  Job job = parked_at(0);
  EXPECT_TRUE(resumes_by_itself(job));
  job.unconfirmed = true;
  EXPECT_FALSE(resumes_by_itself(job));
  job.unconfirmed = false;
  job.operation.emplace();
  EXPECT_FALSE(resumes_by_itself(job));
  job.operation.reset();
  job.resumes_itself = false;
  EXPECT_FALSE(resumes_by_itself(job));
}

}  // namespace
}  // namespace ckpt::coordinator
