// SPDX-License-Identifier: Apache-2.0
// The mover's part of a snapshot: a source without a target. Chunks that have changed since the last snapshot
// are copied to host memory while the job runs. At the barrier, chunks that changed in the meantime are
// copied again. Then the job continues, and the version is written to the checkpoint store in the background.
//
// Threads: see session.h. One thread per session does all work, and starts others while it writes. Errors:
// kAborted and kCorrupt mean that a full snapshot may succeed. In this case the store's last version is not
// the one that this mover knows, or a part of the version is damaged. kRefused means that there is no space,
// or that the store is busy.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "agent/mover/session/host_state.h"
#include "agent/mover/session/session.h"
#include "agent/mover/snapshots/snapshot_memory.h"
#include "agent/mover/snapshots/snapshot_orders.h"
#include "libckpt/protocol/wire/mover_messages.h"
#include "libckpt/store/peer/route.h"
#include "libckpt/store/stored_job.h"

namespace ckpt::mover {

class SnapshotTransfer final : public Session, private MemorySource {
 public:
  SnapshotTransfer(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open,
                   const SessionSecrets& secrets, LastSnapshots& shelf)
      : Session(gpu, agent, open, secrets), shelf_(shelf) {}
  ~SnapshotTransfer() override;
  bool handle(messages::Packet& packet) override;
  void wind_up() override;
  [[nodiscard]] bool is_over() const override { return !working_.load(); }

 private:
  void release(std::uint64_t region) override;
  void attached() override {}
  std::unique_lock<std::mutex> hold() override { return std::unique_lock(held_); }
  std::optional<FoundRegion> find(std::uint64_t region) override;

  void start(const messages::StartSnapshot& request, UniqueFd record);
  // Runs the session's thread.
  void run();
  Result<void> capture();
  Result<void> read_record();
  Result<void> find_last();
  Result<bool> is_little_dirty();
  Result<void> run_ahead();
  Result<void> run_final(const messages::FinalRound& order);
  Result<void> write();
  Result<checkpoint_store::OpenCheckpointStore> open_checkpoint_store();
  Result<void> begin_version();
  Result<void> put(const std::vector<SnapshotMemory::Chunk>& chunks);
  Result<void> keep_unchanged();
  Result<void> put_host_state(SnapshotOrders::SavedHostState state);
  Result<std::shared_ptr<const checkpoint_store::Version>> commit();
  void remember(const checkpoint_store::Version& version);
  void report_staged();
  void release_all();
  void collect();
  Result<image::Plan> plan();

  LastSnapshots& shelf_;
  messages::StartSnapshot request_;
  UniqueFd record_file_;
  std::thread thread_;
  std::atomic<bool> working_{false};
  std::mutex held_;  // locked while memory is scanned or copied

  SnapshotOrders orders_;

  // Only the session's thread uses these fields.
  image::StoredJob stored_;
  image::Plan final_plan_;
  std::unique_ptr<LastSnapshot> last_;
  std::unique_ptr<SnapshotMemory> memory_;
  std::unique_ptr<checkpoint_store::Files> files_;  // files of the store; declared before checkpoint_store_,
                                                    // which uses them and is destroyed first
  std::unique_ptr<checkpoint_store::CheckpointStore> checkpoint_store_;
  std::unique_ptr<checkpoint_store::VersionWriter> writer_;
  std::map<const SnapshotMemory::Extent*, std::uint32_t> regions_in_version_;
  std::map<const SnapshotMemory::Extent*, std::uint64_t> ids_;
  std::int64_t barrier_ms_ = 0;
  std::uint64_t waited_bytes_ = 0;
  std::uint64_t dirty_bytes_ = 0;
  std::uint64_t host_bytes_ = 0;
};

}  // namespace ckpt::mover
