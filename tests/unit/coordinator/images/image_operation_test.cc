// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_operation.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

ImageOperation at(OperationStage stage, bool instance_ended = false) {
  ImageOperation operation;
  operation.stage = stage;
  operation.instance_ended = instance_ended;
  return operation;
}

TEST(ImageOperation, SnapshotIsOrderedUntilItsImageExists) {
  const ImageOperation before_event = at(OperationStage::kTaking);
  OperationView view;
  EXPECT_EQ(next_step(before_event, view), OperationStep::kWait);
  view.source_connected = view.instance_alive = true;
  EXPECT_EQ(next_step(before_event, view), OperationStep::kTakeSnapshot);
  view.image_newer = true;  // an image that an earlier order requested; the job continued afterwards
  EXPECT_EQ(next_step(before_event, view), OperationStep::kTakeSnapshot);
  view.instance_alive = false;
  // A list from before the exit of the instance proves nothing.
  EXPECT_EQ(next_step(before_event, view), OperationStep::kAskCheckpointStore);
  view.checkpoint_store_known = true;
  EXPECT_EQ(next_step(before_event, view), OperationStep::kEnded);
  view.image_newer = false;
  EXPECT_EQ(next_step(before_event, view), OperationStep::kAbandon);
}

TEST(ImageOperation, CancelledOrExpiredSnapshotIsAbandoned) {
  ImageOperation before_event = at(OperationStage::kTaking);
  OperationView view;
  view.expired = true;
  EXPECT_EQ(next_step(before_event, view),
            OperationStep::kWait);  // whether the instance is alive is not known
  view.source_connected = view.instance_alive = true;
  EXPECT_EQ(next_step(before_event, view), OperationStep::kCancel);
  view.expired = false;
  before_event.cancelled = "a migration";
  EXPECT_EQ(next_step(before_event, view), OperationStep::kCancel);
  view.instance_alive = false;
  EXPECT_EQ(next_step(before_event, view),
            OperationStep::kAskCheckpointStore);  // the cancellation was too late
}

TEST(ImageOperation, StopEndsAnOperationAtEachStage) {
  OperationView view;
  for (const auto& [stage, step] : {std::pair(OperationStage::kTaking, OperationStep::kAbandon),
                                    std::pair(OperationStage::kEnding, OperationStep::kEnded),
                                    std::pair(OperationStage::kStarting, OperationStep::kGiveUp)}) {
    ImageOperation operation = at(stage);
    operation.stops = true;
    EXPECT_EQ(next_step(operation, view), step) << to_string(step);
  }
}

TEST(ImageOperation, NoInstanceStartsBeforeTheOldInstanceHasExited) {
  const ImageOperation ending = at(OperationStage::kEnding);
  OperationView view;
  view.target_connected = true;
  EXPECT_EQ(next_step(ending, view), OperationStep::kWait);  // the instance may be alive on a disconnected
                                                             // node
  view.source_connected = view.instance_alive = true;
  EXPECT_EQ(next_step(ending, view), OperationStep::kEnd);
  view.instance_alive = false;
  EXPECT_EQ(next_step(ending, view), OperationStep::kEnded);
}

TEST(ImageOperation, NoInstanceStartsWhileAnAbandonedInstanceMayRun) {
  const ImageOperation ending = at(OperationStage::kEnding, true);
  OperationView view;
  view.source_connected = view.may_live_away = true;
  EXPECT_EQ(next_step(ending, view), OperationStep::kWait);
  view.may_live_away = false;
  EXPECT_EQ(next_step(ending, view), OperationStep::kEnded);
}

TEST(ImageOperation, ForcedOperationStillEndsALivingInstance) {
  const ImageOperation ending = at(OperationStage::kEnding, true);
  OperationView view;
  EXPECT_EQ(next_step(ending, view), OperationStep::kEnded);
  view.instance_alive = true;
  EXPECT_EQ(next_step(ending, view), OperationStep::kEnd);
}

TEST(ImageOperation, StartIsOrderedUntilTheInstanceRuns) {
  const ImageOperation starting = at(OperationStage::kStarting);
  OperationView view;
  view.source_connected = true;
  EXPECT_EQ(next_step(starting, view), OperationStep::kWait);
  view.target_connected = true;
  EXPECT_EQ(next_step(starting, view), OperationStep::kStart);
  view.target_runs = true;
  EXPECT_EQ(next_step(starting, view), OperationStep::kRuns);
}

}  // namespace
}  // namespace ckpt::coordinator
