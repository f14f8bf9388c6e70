// SPDX-License-Identifier: Apache-2.0
// The agent's part of images. It executes TakeSnapshot, RestoreImage and CheckpointStoreOrder of the
// coordinator, and reports the content of the node's checkpoint stores. A job has one snapshot at a time. A
// snapshot never delays a migration of its job: it is canceled and fails (open_snapshots.h).
// Threads: the event loop, and a separate thread that reads checkpoint stores. Ownership: sessions live until
// they are over. Errors: go to the coordinator, as Reply.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agent/checkpoint_server/checkpoint_server.h"
#include "agent/coordinator_link/coordinator_link.h"
#include "agent/migration/ports/move_port.h"
#include "agent/snapshots/open_snapshots.h"
#include "agent/snapshots/restore_session.h"
#include "agent/snapshots/snapshot_session.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent::protect {

class Protection {
 public:
  struct Parts {
    MigrationContext& context;
    CoordinatorLink& coordinator;
    OpenSnapshots& snapshots;
    MovePort& moves;
    std::shared_ptr<CheckpointStoreServer> server;  // serves the checkpoint store to other nodes
  };
  // Registers its frame handlers. Create this object before the agent connects to the coordinator.
  explicit Protection(Parts parts);
  ~Protection();

  [[nodiscard]] bool is_stored(wire::JobId job) const { return parts_.snapshots.contains(job); }
  // Lets movers drop the snapshots of jobs that have left their GPU. Call this function at every change of a
  // job.
  void erase_jobs_that_left();
  // Aborts restores of a job that must stop, up to incarnation `up_to`. Their instances do not run.
  void give_up_restores(wire::JobId job, wire::Incarnation up_to);
  // Waits until no restore of the job up to incarnation `up_to` is in progress. The error is kUnavailable
  // after `timeout`.
  Task<Result<void>> wait_for_restores(wire::JobId job, wire::Incarnation up_to, Milliseconds timeout);

 private:
  using Instance = std::pair<wire::JobId, wire::Incarnation>;
  using JobOnGpu = std::pair<wire::JobId, std::uint32_t>;

  Task<> take_snapshot(wire::TakeSnapshot request);
  Task<Result<void>> snapshot(wire::TakeSnapshot request);
  Task<Result<void>> give_up(wire::JobId job, wire::Incarnation incarnation);
  Task<> gather(wire::GatherRank order);
  Task<> hold(std::shared_ptr<SnapshotSession> session, wire::JobId job);
  void snapshot_is_over(wire::JobId job);
  Task<> restore_image(wire::RestoreImage request);
  Task<Result<void>> restore(wire::RestoreImage request);
  Task<> obey(wire::CheckpointStoreOrder order);
  // Grants another node the use of this node's checkpoint store.
  Task<> grant(wire::GrantCheckpointStore request);
  Task<Result<wire::CheckpointStoreGrant>> granted(wire::GrantCheckpointStore request);
  Task<> read_image(wire::ReadImage request);
  // Reports the contents of the checkpoint store, or the job's part of it, to the coordinator.
  Task<> report_contents(std::string folder, std::string image_job = {});
  void report_all();
  // Reports the image from which an instance was started, if there is one.
  void report_restored(const Job& job);
  Result<CheckpointStorePlace> place_of(const std::string& folder) const;
  Result<CheckpointStorePlace> place_of(const std::string& folder,
                                        const wire::CheckpointStorePeer& peer) const;

  Parts parts_;
  asio::thread_pool pool_{1};
  ProtectContext context_;
  std::set<std::string> folders_;  // checkpoint stores that the coordinator has named
  std::map<Instance, std::shared_ptr<RestoreSession>> restores_;
  std::list<AsyncEvent*> restore_waiters_;
  std::set<JobOnGpu> remembered_;  // jobs whose snapshots movers may still have
};

}  // namespace ckpt::agent::protect
