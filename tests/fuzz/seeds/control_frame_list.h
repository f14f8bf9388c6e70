// SPDX-License-Identifier: Apache-2.0
// Every message that is a body of a control connection's frame, except those of the switch. The target
// control_frames decodes them, and the corpus has a seed of each. A missing frame type does not compile.
#pragma once

#include "libckpt/protocol/gang/gang_plan.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/wire/certificate_messages.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/health_messages.h"
#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::fuzz {

template <class... M>
struct MessageList {
  static constexpr bool has(wire::FrameType type) { return ((M::kFrame == type) || ...); }
  template <class Visitor>
  static void for_each(Visitor visit) {
    (visit.template operator()<M>(), ...);
  }
};

// Append only: the corpus identifies each message by its position.
using ControlMessages =
    MessageList<wire::Hello, wire::HelloReply, wire::Ping, wire::Pong, wire::AgentHello, wire::Welcome,
                wire::Inventory, wire::JobChange, wire::LogData, wire::MigrationProgress, wire::SourceReport,
                wire::TargetReport, wire::Reply, wire::StartJob, wire::StopJob, wire::ReadLog,
                wire::SetLimits, wire::ForgetJob, wire::ProcessFacts, wire::InspectProcess,
                wire::HealthReport, wire::HealthSettings, wire::TakeSnapshot, wire::SnapshotReport,
                wire::RestoreImage, wire::CheckpointStoreContents, wire::CheckpointStoreOrder,
                wire::GrantCheckpointStore, wire::CheckpointStoreGrant, wire::ReadImage, wire::ImageFacts,
                wire::RestoreReport, wire::DescribeJob, wire::JobFacts, wire::DescribeHandover,
                wire::HandoverFacts, wire::CheckMove, wire::ListenForCheck, wire::ListensForCheck,
                wire::ReachNode, wire::NodeReached, wire::AskForKey, wire::KeyMade, wire::UseCertificate,
                wire::DenyCertificates, wire::GatherRank, wire::RankGathered,
                wire::Ping,  // stands in for a gang's own messages, which are now kCommit frames
                gang::AskGroups, gang::RankGroups, wire::MoveNeeds, wire::CheckTarget>;

#define CKPT_FRAME_TYPE(number, name, limit)                                                            \
  static_assert(                                                                                        \
      wire::FrameType::name == wire::FrameType::kCommit || ControlMessages::has(wire::FrameType::name), \
      "append this frame's message to ControlMessages: it would never be fuzzed");
#include "libckpt/protocol/wire/frame_types.def"
#undef CKPT_FRAME_TYPE

}  // namespace ckpt::fuzz
