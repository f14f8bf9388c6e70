// SPDX-License-Identifier: Apache-2.0
// Receives the nodes' reports of checkpoint stores, snapshots and restores. It writes each report into its
// table, and keeps the last reports.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// report about another node's job is logged and dropped.
#pragma once

#include <map>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_frames.h"
#include "coordinator/fleet/running_snapshots.h"
#include "coordinator/images/contents_parts.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/state/event_log.h"
#include "coordinator/state/listeners.h"

namespace ckpt::coordinator {

class ImageReports {
 public:
  struct Dependencies {
    EventLog& events;
    NodeFrames& frames;
    JobTable& jobs;
    ImageCatalog& catalog;
    ImageNumbers& numbers;
    ImageTasks& tasks;
    RunningSnapshots& snapshots;
  };
  // Takes its dependencies and registers the handlers of the frames.
  explicit ImageReports(Dependencies deps);

  // Returns the newest image in that checkpoint store, with its report. `owner` is the node of the checkpoint
  // store, wherever the job is now.
  [[nodiscard]] SnapshotFacts facts_of(const Job& job, const std::string& owner,
                                       const std::string& folder) const;
  // Returns the image that the job's current instance was started from, as its node reports.
  [[nodiscard]] const wire::RestoreReport* restore_of(const Job& job) const;
  void erase_restore(JobId id) { restored_.erase(id); }
  // Listeners to reports that a node takes an image of a gang's rank although no coordinator waits for it any
  // more.
  using Strayed = Listeners<const std::string&, const wire::SnapshotReport&>;
  [[nodiscard]] Strayed& strayed() { return strayed_; }

 private:
  void on_snapshot(const Node& node, const wire::SnapshotReport& report);
  void on_restored(const Node& node, const wire::RestoreReport& report);
  void on_contents(const Node& node, const wire::CheckpointStoreContents& contents);

  Dependencies deps_;
  ContentsParts lists_;
  Strayed strayed_;
  std::map<JobId, wire::SnapshotReport> taken_;  // the last successful snapshot of each job
  std::map<JobId, wire::RestoreReport> restored_;
};

}  // namespace ckpt::coordinator
