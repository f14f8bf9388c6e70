// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/fake_checkpoint_store.h"

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator::test {
namespace {

using wire::FrameType;

constexpr std::uint64_t kStateBytes = 1 << 20;

wire::SnapshotReport report_on(const wire::TakeSnapshot& order) {
  wire::SnapshotReport report;
  report.job = order.job;
  report.incarnation = order.incarnation;
  report.folder = order.folder;
  report.image_job = order.image_job;
  report.set = order.set;
  return report;
}

}  // namespace

FakeCheckpointStore::FakeCheckpointStore(FakeAgent& agent, std::string node,
                                         std::shared_ptr<SharedFolders> shared)
    : agent_(agent), node_(std::move(node)), shared_(std::move(shared)) {
  agent_.on_hello = [this] { report_contents(""); };
  agent_.on_other = [this](const wire::FrameHeader& header, std::span<const std::byte> body) {
    on_frame(header, body);
  };
}

void FakeCheckpointStore::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body) {
  if (header.type == FrameType::kTakeSnapshot) take(wire::decode<wire::TakeSnapshot>(body).value());
  if (header.type == FrameType::kGatherRank) gather(wire::decode<wire::GatherRank>(body).value());
  if (header.type == FrameType::kRestoreImage) restore(wire::decode<wire::RestoreImage>(body).value());
  if (header.type == FrameType::kCheckpointStoreOrder)
    perform(wire::decode<wire::CheckpointStoreOrder>(body).value());
  if (header.type == FrameType::kGrantCheckpointStore)
    grant(wire::decode<wire::GrantCheckpointStore>(body).value());
  if (header.type == FrameType::kReadImage) read(wire::decode<wire::ReadImage>(body).value());
}

// Returns the images in a folder. A node's own checkpoint store is a folder with the node's name. Another
// node cannot access it without a grant.
std::vector<wire::ImageRow>& FakeCheckpointStore::rows_of(const std::string& folder,
                                                          const wire::CheckpointStorePeer& peer) {
  const std::string own = peer.token == shared_->token && !peer.node.empty() ? peer.node : node_;
  return shared_->rows[folder.empty() ? own : folder];
}

void FakeCheckpointStore::grant(const wire::GrantCheckpointStore& request) {
  if (!request.revoke.empty()) {
    revoked += request.revoke == shared_->token ? 1 : 0;
    return reply(request.request_id);
  }
  if (refuse_grants)
    return reply(request.request_id, ErrorCode::kUnavailable, "The checkpoint store is not served");
  ++grants;
  durable = request.durable;
  wire::CheckpointStoreGrant granted;
  granted.request_id = request.request_id;
  granted.address = "127.0.0.1:1";
  granted.token = shared_->token;
  agent_.send(granted);
}

void FakeCheckpointStore::read(const wire::ReadImage& request) {
  wire::ImageFacts facts;
  facts.request_id = request.request_id;
  facts.spec.name = "train";
  facts.spec.argv = {"./train"};
  facts.spec.cwd = "/tmp";
  facts.spec.ranks.emplace_back();
  agent_.send(facts);
}

void FakeCheckpointStore::reply(std::uint64_t request, ErrorCode code, const std::string& error) {
  wire::Reply answer;
  answer.request_id = request;
  answer.ok = error.empty();
  answer.error_code = static_cast<std::uint8_t>(code);
  answer.message = error;
  agent_.send(answer);
}

void FakeCheckpointStore::report_contents(const std::string& folder, const std::string& image_job) {
  wire::CheckpointStoreContents contents;
  contents.folder = folder;
  contents.image_job = image_job;
  {
    const std::lock_guard lock(shared_->mutex);
    for (const wire::ImageRow& row : rows_of(folder))
      if (image_job.empty() || row.image_job == image_job) contents.images.push_back(row);
  }
  agent_.send(contents);
}

void FakeCheckpointStore::give_up(const wire::TakeSnapshot& order) {
  if (ignore_cancels) return;
  const auto held = std::exchange(held_snapshots_, {});
  for (const wire::TakeSnapshot& before_event : held)
    reply(before_event.request_id, ErrorCode::kAborted, "The snapshot was given up by order");
  if (held.empty()) return reply(order.request_id, ErrorCode::kNotFound, "No snapshot is being taken");
  reply(order.request_id);
}

void FakeCheckpointStore::take(const wire::TakeSnapshot& order) {
  if (order.cancel) return give_up(order);
  ++snapshots;
  kept = order.keep;
  if (hold_snapshots) {
    held_snapshots_.push_back(order);
    return;
  }
  if (refuse_snapshots) return reply(order.request_id, ErrorCode::kOutOfMemory, "The disk is full");
  wire::SnapshotReport report = report_on(order);
  if (!lose_answers && !ended_before) agent_.send(report);
  if (gives_way) {
    report.phase = wire::SnapshotPhase::kFailed;
    report.error = "The snapshot gave way to a migration of the job";
    agent_.send(report);
    return reply(order.request_id, ErrorCode::kUnavailable, report.error);
  }
  if (order.set != 0)
    held_snapshots_.push_back(order);
  else
    write(order);
}

// Stops the rank at the first barrier. Its image is taken there.
void FakeCheckpointStore::gather(const wire::GatherRank& order) {
  wire::RankGathered answer;
  answer.request_id = order.request_id;
  answer.stop_at = order.barrier;
  agent_.send(answer);
  if (order.act != wire::GatherAct::kPauseAt) return;
  const auto held = std::exchange(held_snapshots_, {});
  for (const wire::TakeSnapshot& snapshot : held) {
    if (snapshot.job == order.job && snapshot.set == order.set)
      write(snapshot);
    else
      held_snapshots_.push_back(snapshot);
  }
}

void FakeCheckpointStore::write(const wire::TakeSnapshot& order) {
  wire::SnapshotReport report = report_on(order);
  wire::ImageRow row;
  {
    const std::lock_guard lock(shared_->mutex);
    auto& rows = rows_of(order.folder, order.peer);
    for (const wire::ImageRow& known : rows) row.version = std::max(row.version, known.version);
    row.parent = row.version++;
    row.image_job = order.image_job;
    row.job = order.job;
    row.sequence = order.sequence;
    row.set = order.set;
    row.created_ms = wall_clock_ms() - age_ms;
    row.incarnation = order.incarnation;
    row.state_bytes = kStateBytes;
    row.written_bytes = kStateBytes / 4;
    row.gpu_model = "model-1";
    rows.push_back(row);
  }
  report.phase = wire::SnapshotPhase::kDone;
  report.version = row.version;
  report.parent = row.parent;
  report.barrier_ms = row.created_ms;
  report.pause_ns = pause_ns;
  report.state_bytes = row.state_bytes;
  report.written_bytes = row.written_bytes;
  if (order.end_after) agent_.change(order.job, order.incarnation, wire::JobPhase::kMoved, 0);
  if (ended_before) return reply(order.request_id, ErrorCode::kNotFound, "The job does not run on this node");
  if (lose_answers) return;
  agent_.send(report);
  report_contents(order.folder, order.image_job);
  reply(order.request_id);
}

void FakeCheckpointStore::report_restore(const wire::RestoreImage& order) {
  wire::RestoreReport report;
  report.job = order.spec.job;
  report.incarnation = order.spec.incarnation;
  report.folder = order.folder;
  report.image_job = order.image_job;
  {
    const std::lock_guard lock(shared_->mutex);
    for (const wire::ImageRow& row : rows_of(order.folder, order.peer)) {
      if (row.version > order.version || (finds_damage && row.version == order.version)) continue;
      report.version = row.version;
      report.barrier_ms = row.created_ms;
    }
  }
  if (finds_damage) report.skipped = "version " + std::to_string(order.version) + ": half of a pack is gone";
  agent_.send(report);
}

void FakeCheckpointStore::restore(const wire::RestoreImage& order) {
  const auto& known = agent_.inventory.jobs;
  const bool runs = std::any_of(known.begin(), known.end(), [&](const wire::JobInstance& instance) {
    return instance.job == order.spec.job && instance.incarnation == order.spec.incarnation &&
           instance.phase == wire::JobPhase::kRunning;
  });
  if (!runs && order.asks_only)
    return reply(order.request_id, ErrorCode::kNotFound, "The job was not started here from an image");
  if (!runs) {
    ++restores;
    if (hold_restores) return held_restores_.push_back(order.request_id);
    if (refuse_restores) return reply(order.request_id, ErrorCode::kRefused, "The image lacks tensor w1");
  }
  if (!lose_restored) report_restore(order);
  if (!runs) agent_.change(order.spec.job, order.spec.incarnation, wire::JobPhase::kRunning);
  if (lose_restored) return;
  reply(order.request_id);
}

void FakeCheckpointStore::give_up_restores() {
  for (const std::uint64_t request : std::exchange(held_restores_, {}))
    reply(request, ErrorCode::kAborted, "The restore was canceled because the job must end");
}

void FakeCheckpointStore::release_lists() {
  hold_lists = false;
  agent_.post([this] {
    for (const wire::CheckpointStoreOrder& order : std::exchange(held_, {})) perform(order);
  });
}

void FakeCheckpointStore::release_snapshots() {
  hold_snapshots = false;
  agent_.post([this] {
    for (const wire::TakeSnapshot& order : std::exchange(held_snapshots_, {})) take(order);
  });
}

void FakeCheckpointStore::perform(const wire::CheckpointStoreOrder& order) {
  if (order.act == wire::CheckpointStoreAct::kList && hold_lists) {
    held_.push_back(order);
    ++lists;
    return;
  }
  if (order.act == wire::CheckpointStoreAct::kCheck && refuse_checks)
    return reply(order.request_id, ErrorCode::kIo, "The file system is read-only");
  if (order.act == wire::CheckpointStoreAct::kRemoveVersion) {
    const std::lock_guard lock(shared_->mutex);
    std::erase_if(rows_of(order.folder), [&](const wire::ImageRow& row) {
      return row.image_job == order.image_job && row.version == order.version;
    });
  }
  if (order.act == wire::CheckpointStoreAct::kRemoveJob) {
    const std::lock_guard lock(shared_->mutex);
    std::erase_if(rows_of(order.folder),
                  [&](const wire::ImageRow& row) { return row.image_job == order.image_job; });
  }
  report_contents(order.folder, order.of_job ? order.image_job : "");
  reply(order.request_id);
}

}  // namespace ckpt::coordinator::test
