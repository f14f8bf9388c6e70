// SPDX-License-Identifier: Apache-2.0
// One snapshot of a running job: the source half of a migration without a target. The mover copies changed
// chunks while the job runs. At the barrier it copies the rest, and the state other than device memory is
// saved (mode.h). The job then continues while the mover writes the version. A snapshot does not delay a
// migration of the job: give_way() ends a snapshot that still needs the job.
//
//   export -> StartSnapshot -> SnapshotReady -> Pause -> FinalRound, beside it save() -> SnapshotStaged
//   -> go_back(), Resume -> DroppedRegions -> export ends -> SnapshotDone
//
// The coordinator decides where a rank of a gang stops (gather()), so that all images of a set come from one
// barrier (GANG-1). With `holds_after` the rank stays paused after its image is durable, until hold() ends.
//
// Threads: the event loop. Ownership: shared with its coroutines. Errors: those of run(). In every case a
// living job runs again afterwards, unless it was to end and its image is durable.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "agent/migration/modes/mode.h"
#include "agent/mover_client/memory_export.h"
#include "agent/snapshots/protect_context.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent::protect {

class SnapshotSession : public std::enable_shared_from_this<SnapshotSession> {
 public:
  SnapshotSession(ProtectContext& context, wire::TakeSnapshot request, CheckpointStorePlace place,
                  std::shared_ptr<Job> job);

  [[nodiscard]] wire::Incarnation incarnation() const { return request_.incarnation; }
  [[nodiscard]] std::uint64_t set() const { return request_.set; }
  // Takes the snapshot. Call this function once. It reports progress and outcome to the coordinator.
  Task<Result<void>> run();
  // Executes an order of the coordinator to a rank of a gang.
  Task<Result<wire::RankGathered>> gather(wire::GatherRank order);
  // Checks whether the image is durable and the rank is still paused, until hold().
  [[nodiscard]] bool is_holding() const { return is_holding_; }
  // Waits until the rank runs or has exited.
  Task<> hold();
  // Repeats the report to a coordinator that has reconnected.
  void repeat_report() const { context_.report(report_); }
  // Cancels a snapshot that needs the job. Returns when the snapshot neither pauses nor exports the job any
  // more.
  Task<> give_way();
  // Cancels the snapshot, even while it writes, and returns when the job continues. kRefused means that the
  // job has already left for its image.
  Task<Result<void>> cancel();

 private:
  Task<Result<void>> capture_all();
  Task<Result<void>> take_twice();
  Task<Result<void>> capture(bool full);
  Task<Result<void>> prepare(bool full);
  Task<Result<void>> open_session();
  Task<Result<void>> export_memory();
  Result<void> start_copy(bool full);
  [[nodiscard]] bool stays() const { return request_.end_after || request_.holds_after; }
  // Waits for the barrier at which the image must be taken.
  Task<Result<void>> wait_for_barrier();
  // Waits until an order arrives. Returns false if no order has arrived for too long.
  Task<bool> wait_for_order();
  // Continues a rank that waits for other ranks.
  Task<> lift_stop();
  Task<Result<void>> pass_barrier();
  Task<Result<void>> pause();
  Task<Result<void>> save();
  Task<Result<void>> go_on();
  // Waits until the mover holds no memory of the job, or has failed.
  Task<> mover_lets_go();
  Task<> release_memory();
  Task<> release_session();
  void on_mover(mover::Packet packet);
  Task<Result<wire::RankGathered>> wait_until_ready();
  Task<Result<wire::RankGathered>> stop_at(std::uint64_t barrier);
  void notify_watchers();
  template <class T>
  Task<Result<void>> wait_for(const std::optional<T>& what, std::chrono::steady_clock::time_point until);
  void report_phase(wire::SnapshotPhase phase);

  ProtectContext& context_;
  const wire::TakeSnapshot request_;
  const CheckpointStorePlace place_;
  std::shared_ptr<Job> job_;
  std::unique_ptr<SourceMode> mode_;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::unique_ptr<KeeperLink::Exchange> pausing_;
  std::optional<PausedState> paused_;
  std::optional<mover::SnapshotReady> ready_;
  std::optional<mover::SnapshotStaged> staged_;
  std::optional<mover::SnapshotDone> done_;
  bool mover_released_ = false;
  wire::SnapshotReport report_;
  Nanos began_ns_ = 0;
  Nanos barrier_ns_ = 0;
  AsyncEvent arrived_;
  AsyncMutex job_turn_;                       // held while the snapshot needs the job
  std::optional<AsyncMutex::Held> job_held_;  // lock of job_turn_ while it is held
  AsyncMutex whole_turn_;                     // held until the whole snapshot is over
  std::optional<Error> failure_;
  std::chrono::steady_clock::time_point ordered_ =
      std::chrono::steady_clock::now();   // time of the last order
  std::optional<std::uint64_t> barrier_;  // barrier of a rank of a gang; empty for other jobs
  bool is_stopped_ = false;               // true if the order kStopAt was received
  bool is_holding_ = false;
  bool is_released_ = false;
  bool is_over_ = false;             // true if only the release of resources is left for run()
  std::list<AsyncEvent*> watchers_;  // events that wake the coroutines that watch `ready_` and `is_over_`
  bool giving_way_ = false;
  bool cancelled_ = false;
  bool left_ = false;  // true if the job has left for its image
};

}  // namespace ckpt::agent::protect
