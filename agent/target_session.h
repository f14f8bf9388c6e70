// SPDX-License-Identifier: Apache-2.0
// The target's effects of one migration: the standby, its keeper, and the mover's receiving session. The host state that arrived
// is put into the instance's folder before COMMITTED can be written, so that an agent that dies in between still can start
// the instance (the page cache is enough: the standby's memory does not survive its node either).
// Threads: the event loop. Ownership: shared with its coroutines; FreeTarget ends the standby. Errors: StandbyRefused before
// anything was received, EngineFailed later.
#pragma once

#include <memory>
#include <optional>

#include "agent/memory_export.h"
#include "agent/migration_context.h"

namespace ckpt::agent {

class TargetSession : public std::enable_shared_from_this<TargetSession> {
 public:
  TargetSession(MigrationContext& context, migration::SwitchInfo info);
  ~TargetSession();

  void perform(const migration::Action& action);
  // What was measured; complete once the instance runs.
  [[nodiscard]] const std::optional<wire::TargetReport>& report() const noexcept { return report_; }
  [[nodiscard]] const migration::SwitchInfo& info() const noexcept { return info_; }
  [[nodiscard]] std::shared_ptr<Job> job() const { return job_; }

 private:
  struct RunOrder {
    wire::Incarnation k = 0;
    Nanos deadline = local::kNoDeadline;
  };
  void emit(migration::TargetEvent event);
  void fail(const Error& error);
  Task<> prepare();
  Task<Result<wire::Bytes>> prepare_standby();
  Task<Result<void>> start_standby(wire::MigrationPlan plan);
  Task<Result<void>> open_session(std::shared_ptr<MoverProcess> process, wire::MigrationPlan plan);
  void on_mover(mover::Packet packet);
  void on_verified(const mover::Verified& verified, std::vector<UniqueFd> descriptors);
  Task<> run_orders();
  Task<Result<void>> run_instance(RunOrder order);
  Task<Result<void>> resume_standby(RunOrder order);
  Result<UniqueFd> host_state_file() const;
  Task<> release_memory();
  Task<> free();
  void attach_to(const std::shared_ptr<Job>& job);
  void on_local(const local::Body& body);
  [[nodiscard]] std::string host_state_path() const { return job_->folder() + "/host_state"; }

  MigrationContext& context_;
  migration::SwitchInfo info_;
  migration::SwitchKey key_;
  std::shared_ptr<Job> job_;
  std::uint64_t listener_ = 0;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  UniqueFd host_state_;
  std::optional<wire::TargetReport> report_;
  std::optional<RunOrder> order_;  // the newest one not yet begun
  bool ordering_ = false;
  bool preparing_ = false;
  bool stopped_ = false;
};

// The host state's memory file as bytes of a file, and back. Used across an agent's restart.
Result<void> save_host_state(int memory_file, std::uint64_t bytes, const std::string& path);
Result<UniqueFd> load_host_state(const std::string& path);

}  // namespace ckpt::agent
