// SPDX-License-Identifier: Apache-2.0
// The snapshots that are being taken on this node, at most one of each job. A migration that needs a job
// cancels its snapshot here (HolderPort).
// Threads: the event loop. Ownership: shares the sessions, until the caller removes them. Errors: none.
#pragma once

#include <map>
#include <memory>

#include "agent/migration/ports/holder_port.h"
#include "agent/snapshots/snapshot_session.h"

namespace ckpt::agent::protect {

class OpenSnapshots : public HolderPort {
 public:
  void add(wire::JobId job, std::shared_ptr<SnapshotSession> session) { sessions_[job] = std::move(session); }
  void remove(wire::JobId job) { sessions_.erase(job); }
  [[nodiscard]] bool contains(wire::JobId job) const { return sessions_.contains(job); }
  // Returns the job's snapshot; null if no snapshot is being taken.
  [[nodiscard]] std::shared_ptr<SnapshotSession> find(wire::JobId job) const;
  // Sends the reports of the snapshots of sets again, to a coordinator that has reconnected.
  void repeat_reports() const;

  // Implements HolderPort. Cancels a snapshot that still needs the job. A snapshot that only writes
  // continues.
  Task<> acquire_exclusive(wire::JobId job) override;

 private:
  std::map<wire::JobId, std::shared_ptr<SnapshotSession>> sessions_;
};

}  // namespace ckpt::agent::protect
