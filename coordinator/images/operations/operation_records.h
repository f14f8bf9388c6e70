// SPDX-License-Identifier: Apache-2.0
// Records the progress of an operation on a job's images: its next stage, or its result. Written into the
// job's record, then into the event log and the task that clients watch.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: those of the
// store; then nothing has changed.
#pragma once

#include <string>

#include "coordinator/images/image_reports.h"
#include "coordinator/images/operations/open_operations.h"
#include "coordinator/operations/stops.h"

namespace ckpt::coordinator {

// Exit codes of the command that asked (docs/design.md §10).
inline constexpr int kImageExitFailed = 1;
inline constexpr int kImageExitInterrupted = 2;
inline constexpr int kImageExitRestored = 3;
inline constexpr int kImageExitUnknown = 6;

class OperationRecords {
 public:
  struct Parts {
    EventLog& events;
    const NodeTable& nodes;
    JobTable& jobs;
    JobLifecycle& lifecycle;
    const ImageCatalog& catalog;
    ImageReports& reports;
    OpenOperations& open;
    Stops& stops;
  };
  explicit OperationRecords(Parts parts) : parts_(parts) {}

  // The snapshot was not taken: the job goes on where it is, or has ended by itself.
  Result<void> abandon(JobId id, const Error& why);
  // The instances that were to end have: it rests in its image, or is to be started from it.
  Result<void> ended(JobId id);
  // The next instance runs.
  Result<void> runs(JobId id);
  // It does not: the job rests in its image, as before.
  Result<void> not_started(JobId id, const Error& why);

 private:
  Result<void> parked(Job job, const std::string& why);
  Result<void> to_starting(Job job);
  [[nodiscard]] Restored restored_of(const Job& job) const;
  void stop_after(JobId id, const ImageOperation& operation);

  Parts parts_;
};

}  // namespace ckpt::coordinator
