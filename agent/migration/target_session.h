// SPDX-License-Identifier: Apache-2.0
// The target's effects of one migration: the instance (mode.h), its keeper, and the mover's receiving
// session.
// Threads: the event loop. Ownership: shared with its coroutines; FreeTarget ends the instance. Errors:
// StandbyRefused before anything was received, EngineFailed later.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "agent/migration/modes/migration_context.h"
#include "agent/migration/modes/mode.h"
#include "agent/mover_client/memory_export.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

class TargetSession : public std::enable_shared_from_this<TargetSession> {
 public:
  TargetSession(MigrationContext& context, migration::SwitchInfo info);
  TargetSession(MigrationContext& context, migration::SwitchInfo info, std::unique_ptr<TargetMode> way);
  ~TargetSession();

  void perform(const migration::Action& action);
  // What was measured; complete once the instance runs.
  [[nodiscard]] const std::optional<wire::TargetReport>& report() const noexcept { return report_; }
  [[nodiscard]] const migration::SwitchInfo& info() const noexcept { return info_; }
  [[nodiscard]] std::shared_ptr<Job> job() const { return job_; }

 private:
  void emit(migration::TargetEvent event);
  void fail(const Error& error);
  Task<> prepare();
  Task<Result<wire::Bytes>> prepare_standby();
  Task<Result<void>> start_instance();
  Task<Result<void>> export_memory();
  Task<Result<void>> open_session(std::shared_ptr<MoverProcess> process, wire::MigrationPlan plan);
  void on_mover(mover::Packet packet);
  Task<> take_arrived();
  Task<Result<void>> take(mover::Packet packet);
  void on_verified(const mover::Verified& verified, std::vector<UniqueFd> descriptors);
  Task<> compare(wire::Bytes payload);
  void order_run(const migration::RunInstance& run);
  Task<> renew_lease(std::shared_ptr<KeeperLink> keeper, Nanos deadline);
  Task<> run_orders();
  Task<Result<void>> run_instance(RunOrder& order);
  Task<> release_memory();
  void learn();
  Task<> free();
  void attach_to(const std::shared_ptr<Job>& job);
  void on_local(const local::Body& body);
  void report_end();
  [[nodiscard]] bool has_finished() const;

  MigrationContext& context_;
  migration::SwitchInfo info_;
  migration::SwitchKey key_;
  std::unique_ptr<TargetMode> way_;
  std::shared_ptr<Job> job_;
  std::uint64_t listener_ = 0;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::deque<mover::Packet> arrived_;  // memory that the mover made, then its word that all is verified
  std::uint64_t let_go_ = 0;           // regions that the source's job has freed since
  bool taking_ = false;
  bool comparing_ = false;  // way_->compare() has not said yes yet
  std::optional<wire::TargetReport> report_;
  std::optional<RunOrder> order_;    // the newest one not yet begun
  std::optional<RunOrder> running_;  // the one that is under way
  wire::Incarnation ran_as_ = 0;     // 0: not yet, as far as this agent knows
  bool ended_ = false;               // the instance did, by the word of its keeper
  bool finished_ = false;            // with exit code 0, or as it was told to
  bool ordering_ = false;
  bool preparing_ = false;
  bool stopped_ = false;
  bool learnt_ = false;
};

}  // namespace ckpt::agent
