// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/report.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMs = 1'000'000;

wire::SourceReport source() {
  wire::SourceReport s;
  s.barrier_entered_ns = 1000 * kMs;
  s.paused_ns = 1001 * kMs;
  s.last_ack_ns = 1011 * kMs;
  s.clock_offset_ns = 500 * kMs;
  s.state_bytes = 100'000'000;
  s.dirty_bytes = 70'000'000;  // over all rounds: the pause does not wait for these bytes
  s.final_bytes = 10'000'000;
  s.scan_bytes_per_second = 20'000'000'000;
  s.link_bytes_per_second = 1'000'000'000;
  return s;
}

wire::TargetReport target() {
  wire::TargetReport t;
  t.verified_ns = 1513 * kMs;
  t.committed_ns = 1516 * kMs;
  t.resume_sent_ns = 1517 * kMs;
  t.resumed_ns = 1519 * kMs;
  return t;
}

TEST(Downtime, DowntimeIsSplitOnTheSourceClock) {
  const auto d = compute_downtime(source(), target());
  ASSERT_TRUE(d);
  EXPECT_DOUBLE_EQ(d->quiesce, 1);
  EXPECT_DOUBLE_EQ(d->final_copy, 10);
  EXPECT_DOUBLE_EQ(d->verify, 2);
  EXPECT_DOUBLE_EQ(d->commit, 3);
  EXPECT_DOUBLE_EQ(d->restore, 1);
  EXPECT_DOUBLE_EQ(d->resume, 2);
  EXPECT_DOUBLE_EQ(d->total(), 19);
}

TEST(Downtime, MemoryFilledAtTheTargetIsASeparateTerm) {
  wire::TargetReport t = target();
  t.context_restored_ns = 1516 * kMs + kMs / 4;
  t.memory_filled_ns = 1516 * kMs + 3 * kMs / 4;
  const auto d = compute_downtime(source(), t);
  ASSERT_TRUE(d);
  EXPECT_DOUBLE_EQ(d->context, 0.25);
  EXPECT_DOUBLE_EQ(d->fill, 0.5);
  EXPECT_DOUBLE_EQ(d->restore, 0.25);
  EXPECT_DOUBLE_EQ(d->total(), 19);
  t.memory_filled_ns = 0;
  EXPECT_DOUBLE_EQ(compute_downtime(source(), t)->fill, 0);
}

TEST(Downtime, CommunicatorsCreatedDuringThePauseAreASeparateTerm) {
  wire::TargetReport t = target();
  t.groups_made_ns = 1515 * kMs;
  const auto d = compute_downtime(source(), t);
  ASSERT_TRUE(d);
  EXPECT_DOUBLE_EQ(d->communicators, 2);
  EXPECT_DOUBLE_EQ(d->commit, 1);
  EXPECT_DOUBLE_EQ(d->total(), 19);
  t.groups_made_ns = 1512 * kMs;  // before the image was verified: nothing waited for the communicators
  EXPECT_DOUBLE_EQ(compute_downtime(source(), t)->communicators, 0);
}

TEST(Downtime, DowntimeRequiresEveryTimestamp) {
  for (int missing = 0; missing < 7; ++missing) {
    wire::SourceReport s = source();
    wire::TargetReport t = target();
    std::int64_t* points[] = {&s.barrier_entered_ns, &s.paused_ns,      &s.last_ack_ns, &t.verified_ns,
                              &t.committed_ns,       &t.resume_sent_ns, &t.resumed_ns};
    *points[missing] = 0;
    EXPECT_FALSE(compute_downtime(s, t)) << missing;
  }
}

TEST(Downtime, ClockErrorCausesNoNegativeTerm) {
  wire::SourceReport s = source();
  s.clock_offset_ns +=
      5 * kMs;  // the target's points appear 5 ms too early: verified before the last acknowledgement
  const auto d = compute_downtime(s, target());
  ASSERT_TRUE(d);
  EXPECT_DOUBLE_EQ(d->verify, 0);
  EXPECT_DOUBLE_EQ(d->commit, 0);
  EXPECT_GE(d->restore, 0);
  EXPECT_DOUBLE_EQ(d->total(), 14);  // the end points remain as the clocks recorded them
  s.clock_offset_ns += 100 * kMs;    // resumed before the barrier: no meaningful value is left
  EXPECT_DOUBLE_EQ(compute_downtime(s, target())->total(), 0);
}

TEST(Pause, AProcessPauseIsSplitByTheTermsOfTheEstimate) {
  using wire::PauseTerm;
  wire::SourceReport s = source();
  wire::TargetReport t = target();
  s.context_saved_ns = 1003 * kMs;
  s.host_saved_ns = 1008 * kMs;
  t.host_restored_ns = 1516 * kMs + kMs / 4;
  t.context_restored_ns = 1516 * kMs + kMs / 2;
  EXPECT_FALSE(pause_of(s, *compute_downtime(s, t))) << "its source does not say what it grew with";
  s.estimate.emplace();
  s.estimate->kind = wire::PauseKind::kProcess;
  s.estimate->bytes[PauseTerm::kDump] = 77;
  const auto d = compute_downtime(s, t);
  const auto pause = pause_of(s, *d);
  ASSERT_TRUE(pause);
  EXPECT_EQ(pause->kind, wire::PauseKind::kProcess);
  EXPECT_EQ(pause->bytes[PauseTerm::kDump], 77);
  EXPECT_EQ(pause->ns[PauseTerm::kContextSave], 2 * kMs);
  EXPECT_EQ(pause->ns[PauseTerm::kDump], 5 * kMs);
  EXPECT_EQ(pause->ns[PauseTerm::kFinal], 3 * kMs);
  EXPECT_EQ(pause->ns[PauseTerm::kHostRestore], kMs / 4);
  EXPECT_EQ(pause->ns[PauseTerm::kContextRestore], kMs / 4);
  EXPECT_NEAR(static_cast<double>(pause->ns.total()), d->total() * kMs, 1000);
  EXPECT_NEAR(breakdown_of(*pause).host, d->host, 1e-3);
}

TEST(Pause, ASwapPauseIncludesTheFullContextSaveEvenIfTheSaveOverlapsTheCopy) {
  using wire::PauseTerm;
  wire::SourceReport s = source();
  s.context_saved_ns = 1008 * kMs;  // saved before the last acknowledgement
  s.estimate.emplace();
  wire::TargetReport t = target();
  t.context_restored_ns = 1516 * kMs + kMs / 2;
  const auto pause = pause_of(s, *compute_downtime(s, t));
  ASSERT_TRUE(pause);
  EXPECT_EQ(pause->ns[PauseTerm::kContextSave], 7 * kMs);
  EXPECT_EQ(pause->ns[PauseTerm::kContextRestore], kMs / 2);
  EXPECT_EQ(pause->ns[PauseTerm::kFinal], 0) << "of the copy";
}

TEST(Bound, BoundIncludesMovedHostMemory) {
  wire::SourceReport s = source();
  s.host_bytes = 10'000'000;
  const auto d = compute_downtime(s, target());
  EXPECT_DOUBLE_EQ(compute_bound(s, target(), *d)->ms, 1 + 20 + 3 + 3);
}

TEST(Bound, BoundIncludesReadingAndWritingDumpedHostMemory) {
  wire::SourceReport s = source();
  s.host_bytes = 10'000'000;  // sent with the final round, which takes 20 ms on the link
  s.context_saved_ns = 1002 * kMs;
  s.host_saved_ns = 1004 * kMs;
  s.host_read_bytes_per_second = 400'000'000;
  wire::TargetReport t = target();
  t.host_restored_ns = 1516 * kMs + kMs / 2;
  t.host_write_bytes_per_second = 250'000'000;
  const auto d = compute_downtime(s, t);
  ASSERT_TRUE(d);
  auto bound = compute_bound(s, t, *d);
  ASSERT_TRUE(bound);
  EXPECT_DOUBLE_EQ(bound->ms, d->quiesce + 25 + d->commit + 40 + d->restore + d->resume);
  EXPECT_EQ(bound->by, "host_write");
  s.host_read_bytes_per_second = 1'000'000'000;  // the memory is read while it is sent, so the slower link
                                                 // counts
  bound = compute_bound(s, t, *d);
  EXPECT_DOUBLE_EQ(bound->ms, d->quiesce + 20 + d->commit + 40 + d->restore + d->resume);
  s.host_read_bytes_per_second = t.host_write_bytes_per_second = 0;
  EXPECT_DOUBLE_EQ(compute_bound(s, t, *d)->ms, d->quiesce + 20 + d->commit + d->restore + d->resume)
      << "not known";
}

TEST(Bound, BoundUsesTheLargerOfScanAndLinkTime) {
  const auto d = compute_downtime(source(), target());
  auto bound = compute_bound(source(), target(), *d);  // the scan takes 5 ms, the link 10 ms
  ASSERT_TRUE(bound);
  EXPECT_DOUBLE_EQ(bound->ms, 1 + 10 + 3 + 3);
  EXPECT_EQ(bound->by, "link");
  wire::SourceReport s = source();
  s.final_bytes = 0;
  bound = compute_bound(s, target(), *d);
  EXPECT_DOUBLE_EQ(bound->ms, 1 + 5 + 3 + 3);
  EXPECT_EQ(bound->by, "scan");
}

TEST(Bound, BoundIsUnknownWithoutRates) {
  wire::SourceReport s = source();
  s.link_bytes_per_second = 0;
  EXPECT_FALSE(compute_bound(s, target(), Downtime()));
}

}  // namespace
}  // namespace ckpt::coordinator
