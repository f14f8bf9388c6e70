// SPDX-License-Identifier: Apache-2.0
// The mode of an adopted process (docs/adr/0007). The process contains none of our libraries, so nothing is
// copied while it runs. In the pause the driver saves the context, with all its device memory, in the process
// itself. Between two GPUs of this node, the context is restored on the other GPU (AdoptedSwap...). Between
// two nodes, CRIU moves the process (AdoptedProcess...) into its own PID namespace. The keeper holds phase
// and lease. The driver's state is queried, and the job's record contains the GPU of the context. Therefore
// saving and going back may be repeated, even by another agent, and each undoes a half-finished call of the
// other. The engine has no region of the process. Its rounds are empty, and the image is the host state.
// Threads, ownership, errors: see mode.h.
#pragma once

#include <optional>

#include "agent/host_process/criu.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/processes/task_settings.h"
#include "agent/host_process/processes/time_limit.h"
#include "agent/host_process/sockets/bound_ports.h"
#include "agent/host_process/sockets/connections.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/modes/process_image.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {

// The time at which the context was on the GPU, and whether the process continues with it.
struct AdoptedPlace {
  Nanos restored_ns = 0;
  Result<void> runs = ok();
};

// Returns the work of a pause. The driver saves device memory in the process's own memory, which moves with
// the process unless it `stays` on this node.
[[nodiscard]] PauseWork adopted_work(const host::TreeSize& size, std::uint64_t device_bytes, bool stays);

class AdoptedSource final : public SourceMode {
 public:
  AdoptedSource(MigrationContext& context, JobOperation operation)
      : context_(context),
        operation_(std::move(operation)),
        stays_(operation_.pause_kind() == PauseKind::kAdoptedSwap) {}
  // Returns true even if the process stays, because the saved state is all that is sent.
  [[nodiscard]] bool sends_host_state() const override { return true; }
  [[nodiscard]] PauseWork pause_work(const Job& job, const local::StateSummary& summary) const override;
  Task<Result<void>> check(std::shared_ptr<Job> job) override;
  Result<void> check_target(const EndpointPayload& target) override;
  [[nodiscard]] wire::MoveNeeds needs() const override;
  [[nodiscard]] wire::Bytes payload() const override { return files_; }
  Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                               wire::SourceReport& report) override;
  Task<Result<void>> go_back(std::shared_ptr<Job> job) override;
  Task<> leave(std::shared_ptr<Job> job) override;

 private:
  Task<Result<void>> check_process(std::shared_ptr<Job> job, local::Status status);
  Task<Result<HostState>> dump(std::shared_ptr<Job> job, std::uint64_t device_bytes);

  MigrationContext& context_;
  const JobOperation operation_;
  const bool stays_;  // true if the process stays on this node
  std::optional<host::Criu> criu_;
  wire::Bytes files_;
  host::FileList listed_;  // the list that files_ contains in encoded form
  host::FileRules rules_;
  host::TreeSize size_;
  Milliseconds limit_ = host::kStuckAfter;  // time limit of work on all memory of the process, derived from
                                            // its size before the pause
  host::BoundPorts ports_;
  host::ConnectionRepair repair_;
  bool has_connections_ = false;
};

class AdoptedTarget final : public TargetMode {
 public:
  AdoptedTarget(MigrationContext& context, JobOperation operation)
      : context_(context),
        operation_(std::move(operation)),
        stays_(operation_.pause_kind() == PauseKind::kAdoptedSwap) {}
  std::shared_ptr<Job> find() override;
  Task<Result<std::shared_ptr<Job>>> start() override;
  Task<Result<void>> ready(std::shared_ptr<Job> job) override;
  Task<Result<void>> compare(wire::Bytes payload) override;
  Task<Result<std::shared_ptr<Job>>> bring() override;
  [[nodiscard]] bool has_memory() const override { return false; }
  Task<Result<void>> import_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                   std::vector<UniqueFd> descriptors) override;
  Result<void> store_host_state(std::shared_ptr<Job> job, HostState state) override;
  Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) override;
  [[nodiscard]] PauseWork pause_work(const Job& job) const override;
  Task<> end(std::shared_ptr<Job> job) override;
  Task<> free(std::shared_ptr<Job> job) override;

 private:
  Task<Result<std::shared_ptr<Job>>> restore();
  Task<Result<AdoptedPlace>> place(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report);

  MigrationContext& context_;
  const JobOperation operation_;
  const bool stays_;
  std::optional<host::Criu> criu_;
  HostState image_;
  host::CheckedFiles checked_;   // files that compare() has accepted
  host::TaskSettings settings_;  // settings from the image
  MadeResources made_;
  std::set<pid_t> stopped_;  // processes that the program itself had stopped (stopped_processes.h)
  host::TreeSize size_;      // size of the processes after they run here
  std::uint64_t image_bytes_ = 0;
};

// Puts the job back if it is held, independent of the steps of an earlier agent. Afterwards the context is on
// GPU number `gpu` of this node, and the process continues.
Task<Result<void>> put_adopted_back(MigrationContext& context, std::shared_ptr<Job> job, std::uint32_t gpu,
                                    host::ConnectionRepair repair = {});

}  // namespace ckpt::agent
