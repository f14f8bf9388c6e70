// SPDX-License-Identifier: Apache-2.0
// A job that is started from an image: the target half of a migration without a source. The mover fills a new
// instance's memory (mode.h) from the checkpoint store, and the instance then gets its host state. It runs as
// the incarnation that the coordinator chose.
// Threads: the event loop. Ownership: shared with its coroutine. Errors: those of run(), after which nothing
// of the instance is left. If the agent exits before its instance runs, the next agent terminates the
// instance.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "agent/migration/modes/mode.h"
#include "agent/mover_client/memory_export.h"
#include "agent/snapshots/protect_context.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent::protect {

class RestoreSession : public std::enable_shared_from_this<RestoreSession> {
 public:
  RestoreSession(ProtectContext& context, wire::RestoreImage request, CheckpointStorePlace place);

  // Runs the restore. Call this function once.
  Task<Result<void>> run();
  // Aborts the restore, because the job must stop. The instance does not run, unless it runs already. run()
  // fails as soon as possible.
  void give_up();

 private:
  Task<Result<StoredVersion>> read(std::uint64_t version);
  Task<Result<void>> restore();
  Task<Result<void>> check(const StoredVersion& stored);
  Task<Result<void>> start_instance();
  Task<Result<void>> open_session(std::shared_ptr<MoverProcess> process);
  Task<Result<void>> export_memory();
  Task<Result<void>> fill();
  Task<Result<void>> handle(mover::Packet packet);
  Result<void> write_report() const;
  Task<Result<void>> run_instance();
  [[nodiscard]] Result<void> check_is_wanted() const;
  Task<> release_memory();
  Task<> clean_up();
  void on_mover(mover::Packet packet);

  ProtectContext& context_;
  wire::RestoreImage request_;
  const CheckpointStorePlace place_;
  StoredVersion stored_;
  std::unique_ptr<TargetMode> mode_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::deque<mover::Packet> packets_;
  std::optional<mover::RestoreDone> done_;
  HostState host_state_;
  std::uint64_t released_ = 0;
  Nanos fill_ns_ = 0;
  AsyncEvent arrived_;
  std::optional<Error> failure_;
  bool given_up_ = false;
};

}  // namespace ckpt::agent::protect
