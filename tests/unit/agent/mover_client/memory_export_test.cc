// SPDX-License-Identifier: Apache-2.0
// A rank's memory on its way to a mover. The test plays the rank's keeper and the mover.
#include "agent/mover_client/memory_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libckpt/include/ckpt/ckpt.h"
#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kExportedBytes = 4096;
const mover::SessionKey kExporting(7, 0);

template <class M>
M of_export() {
  M message;
  message.session = kExporting;
  return message;
}

UniqueFd exported_memory() {
  return make_memory_file("region", kExportedBytes).value();
}

class MemoryExportTest : public AgentWithMovers {
 protected:
  using Run = Running<Result<local::StateSummary>>;
  void SetUp() override {
    mover_ = serve();
    keeper_.emplace(io_, folder_.path());
    link_ = KeeperLink::connect(io_.get_executor(), folder_ / "keeper.sock", Milliseconds(60000), {}).value();
    auto request = of_export<mover::OpenSession>();
    request.side = wire::Side::kSource;
    session_ = MoverSession::open(io_.get_executor(), process_, request, Milliseconds(60000), {}).value();
    mover_->receive<mover::OpenSession>("the session is opened");
  }
  void TearDown() override {
    link_->close();
    export_.reset();
    await_event(io_, "the export has stopped", [this] { return exported_.expired(); });
  }
  Run run(Milliseconds timeout = Milliseconds(60000)) {
    MemoryExport::Settings settings;
    settings.timeout = timeout;
    settings.retain_descriptors = true;
    settings.failed = [this](const Error& error) { failures_.push_back(error.to_string()); };
    export_ = MemoryExport::create(link_, session_, std::move(settings));
    exported_ = export_;
    Run runs(io_, "run()", export_->run(io_.get_executor()));
    stream_ = keeper_->receive<local::Export>("the export is asked for").request;
    return runs;
  }
  // Exports no memory, so that the export proceeds to observing the rank.
  void follow() {
    auto runs = run();
    keeper_->answer(stream_, local::ExportEnd{});
    ASSERT_TRUE(runs.result()) << runs.result().error().to_string();
  }
  void send_batch(std::uint64_t sequence, std::uint64_t region) {
    local::ExportBatch batch;
    batch.sequence = sequence;
    batch.records.push_back({region, 1, kExportedBytes, {}});
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(exported_memory());
    keeper_->answer(stream_, batch, std::move(descriptors));
  }
  void send_tensors(std::size_t count, std::uint64_t region) {
    local::Tensors tensors;
    for (std::size_t i = 0; i < count; ++i) {
      local::TensorRecord& record = tensors.records.emplace_back();
      record.name.assign("tensor-" + std::to_string(i));
      record.region = region;
      record.bytes = 4;
      record.dtype = CKPT_F32;
      record.kind = CKPT_PARAMETER;
      record.dims = 1;
      record.shape[0] = 1;
    }
    keeper_->answer(stream_, tensors);
  }
  void report_attached(std::uint64_t batch) {
    auto attached = of_export<mover::Attached>();
    attached.batch = batch;
    mover_->send(attached);
  }
  void await_failure() {
    await_event(io_, "the export fails", [this] { return !failures_.empty(); });
  }

  std::unique_ptr<FakeMover> mover_;
  std::optional<PlayedKeeper> keeper_;
  std::shared_ptr<KeeperLink> link_;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::weak_ptr<MemoryExport> exported_;
  std::uint64_t stream_ = 0;
  std::vector<std::string> failures_;
};

// The rank keeps a region until its batch is acknowledged.
TEST_F(MemoryExportTest, BatchIsAcknowledgedOnceTheMoverHasReceivedIt) {
  auto runs = run();
  send_batch(3, 11);
  std::vector<UniqueFd> descriptors;
  const auto attached = mover_->receive<mover::AttachRegions>("the batch", &descriptors);
  ASSERT_EQ(attached.regions.size(), 1U);
  EXPECT_EQ(attached.regions.front().id, 11U);
  EXPECT_EQ(descriptors.size(), 1U);
  EXPECT_FALSE(keeper_->is_asked()) << "the mover has not mapped it yet";
  report_attached(1);
  EXPECT_EQ(keeper_->receive<local::ExportAck>("the acknowledgement").body.sequence, 3U);
  EXPECT_FALSE(runs.done());
  local::ExportEnd end;
  end.summary.regions = 1;
  keeper_->answer(stream_, end);
  ASSERT_TRUE(runs.result());
  EXPECT_EQ(runs.result()->regions, 1U);
}

TEST_F(MemoryExportTest, TensorsAreSentToTheMoverAfterTheirRegions) {
  auto runs = run();
  send_tensors(2, 11);
  send_batch(1, 11);
  mover_->receive<mover::AttachRegions>("the region, ahead of its tensors");
  report_attached(1);
  keeper_->receive<local::ExportAck>("the acknowledgement");
  keeper_->answer(stream_, local::ExportEnd{});
  EXPECT_TRUE(runs.result());
  EXPECT_EQ(mover_->receive<mover::AttachTensors>("the tensors").tensors.size(), 2U);
}

TEST_F(MemoryExportTest, TooManyTensorsAreRefused) {
  auto runs = run();
  for (std::size_t sent = 0; sent <= kMaxTensors; sent += local::kMaxRecords)
    send_tensors(local::kMaxRecords, 11);
  ASSERT_FALSE(runs.result());
  EXPECT_EQ(runs.result().error().code(), ErrorCode::kRefused);
  EXPECT_THAT(runs.result().error().to_string(), HasSubstr("more tensors than can be moved"));
}

TEST_F(MemoryExportTest, MessageWithoutAnExportIsAnError) {
  auto runs = run();
  keeper_->answer(stream_, local::DumpReady{});
  ASSERT_FALSE(runs.result());
  EXPECT_EQ(runs.result().error().code(), ErrorCode::kProtocol);
}

TEST_F(MemoryExportTest, BatchWithoutADescriptorEndsTheKeepersConnection) {
  auto runs = run();
  local::ExportBatch batch;
  batch.sequence = 1;
  batch.records.push_back({11, 1, kExportedBytes, {}});
  keeper_->answer(stream_, batch);
  ASSERT_FALSE(runs.result());
  EXPECT_EQ(runs.result().error().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(link_->is_open());
}

TEST_F(MemoryExportTest, SilentKeeperTimesOutAfterTheStepLimit) {
  auto runs = run(Milliseconds(1));
  ASSERT_FALSE(runs.result());
  EXPECT_EQ(runs.result().error().code(), ErrorCode::kTimedOut);
}

TEST_F(MemoryExportTest, LossOfTheKeeperDuringTheExportIsAnError) {
  auto runs = run();
  keeper_->go_away();
  ASSERT_FALSE(runs.result());
  EXPECT_EQ(runs.result().error().code(), ErrorCode::kUnavailable);
}

TEST_F(MemoryExportTest, BatchIsNotAcknowledgedIfTheMoverDies) {
  auto runs = run();
  send_batch(1, 11);
  mover_->receive<mover::AttachRegions>("the batch");
  mover_->exit(5);
  ASSERT_FALSE(runs.result());
  EXPECT_THAT(runs.result().error().to_string(), HasSubstr("exit status 5"));
  EXPECT_FALSE(keeper_->is_asked());
}

// After the acknowledgement, the rank returns the freed memory to the driver.
TEST_F(MemoryExportTest, FreedRegionIsAcknowledgedOnceTheMoverHasReleasedIt) {
  follow();
  keeper_->answer(stream_, local::RegionFreed{11, 4});
  EXPECT_THAT(mover_->receive<mover::DropRegions>("the freed region").regions, ElementsAre(11U));
  EXPECT_FALSE(keeper_->is_asked()) << "the mover still has it";
  auto dropped = of_export<mover::Dropped>();
  dropped.regions = {11};
  mover_->send(dropped);
  const auto ack = keeper_->receive<local::RegionFreedAck>("the acknowledgement").body;
  EXPECT_EQ(ack.id, 11U);
  EXPECT_EQ(ack.generation, 4U);
}

TEST_F(MemoryExportTest, TensorNamedLaterIsSentImmediatelyAndCanBeDropped) {
  follow();
  send_tensors(1, 11);
  EXPECT_EQ(mover_->receive<mover::AttachTensors>("the new tensor").tensors.front().name, "tensor-0");
  local::TensorDropped dropped;
  dropped.name.assign("tensor-0");
  keeper_->answer(stream_, dropped);
  EXPECT_THAT(mover_->receive<mover::DropTensors>("the dropped tensor").names, ElementsAre("tensor-0"));
}

TEST_F(MemoryExportTest, FailureDuringTheExportOfLaterChangesIsReportedOnce) {
  follow();
  keeper_->answer(stream_, local::DumpReady{});
  await_failure();
  keeper_->go_away();
  run_ready(io_);
  EXPECT_EQ(failures_.size(), 1U);
}

TEST_F(MemoryExportTest, LossOfTheKeeperDuringTheExportOfLaterChangesIsReported) {
  follow();
  keeper_->go_away();
  await_failure();
  EXPECT_EQ(failures_.size(), 1U);
}

TEST_F(MemoryExportTest, StopIsSentToTheRankOnceWithoutAFailure) {
  follow();
  RunningVoid stops(io_, "stop()", export_->stop());
  keeper_->answer(keeper_->receive<local::StopExport>("the order to stop").request, local::Done{});
  stops.finish();
  RunningVoid(io_, "stop()", export_->stop()).finish();
  EXPECT_FALSE(keeper_->is_asked());
  EXPECT_TRUE(failures_.empty());
}

TEST_F(MemoryExportTest, DeathOfTheMoverReleasesARegionBeingFreed) {
  follow();
  keeper_->answer(stream_, local::RegionFreed{11, 4});
  mover_->receive<mover::DropRegions>("the freed region");
  mover_->exit(5);
  EXPECT_EQ(keeper_->receive<local::RegionFreedAck>("the acknowledgement").body.id, 11U);
}

}  // namespace
}  // namespace ckpt::agent
