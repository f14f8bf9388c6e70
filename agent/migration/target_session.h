// SPDX-License-Identifier: Apache-2.0
// The target's effects of one migration: the instance (mode.h), its keeper, and the mover's receiving
// session. Each action of the machine returns at once, and its result is an event.
//
// The machine (libckpt/protocol/handover/target_machine.h) decides. This class only stores the progress of
// its orders, in two values.
//   Stage, of the copy:
//     kNew       --PrepareStandby-->           kPreparing
//     kPreparing --prepare() returns-->        kPrepared   StandbyReady or StandbyRefused was emitted
//     kPrepared  --StartReceiving-->           kComparing  beside the rounds; the mover's Verified waits
//     kComparing --compare() succeeds-->       kReceiving  after a failure the stage stays kComparing
//     kReceiving --Verified of the mover-->    kVerified   the report begins, FinalVerified was emitted
//     kVerified  --the instance runs-->        kMeasured   the costs of the pause have been learnt
//     kPreparing --FreeTarget-->               kAbandoned  prepare() goes on, and then frees
//     kAbandoned --prepare() returns-->        kFreed
//     any other  --FreeTarget-->               kFreed
//     A session of an agent that was restarted begins at kNew and is ordered to run or to free. From
//     kAbandoned on no message of the mover is handled, and no failure is emitted: the machine has decided.
//     RunInstance changes no stage until the instance runs. If the keeper is lost, the order is repeated. After
//     a limit, the migration's own instance is ended instead, and its end is stated once it is proven.
//   InstanceEnd, as the keeper reports it: while an order to run is under way the event follows the order.
//     kNone --RankExited--> kFinished   with exit code 0, or ended by the keeper as ordered
//     kNone --RankExited--> kDied
//
// Threads: the event loop. Ownership: shared with its coroutines. FreeTarget ends the instance. Errors:
// StandbyRefused before anything was received, EngineFailed later.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "agent/migration/modes/migration_context.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/ports/session_port.h"
#include "agent/mover_client/memory_export.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

class TargetSession : public std::enable_shared_from_this<TargetSession> {
 public:
  // `events` receives the events of the session.
  TargetSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info);
  TargetSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info,
                std::unique_ptr<TargetMode> mode);
  ~TargetSession();

  void perform(const migration::Action& action);
  // Replaces RunInstance for a rank of a gang. The instance takes over its state and waits behind its gate.
  // kAborted means that the instance has ended, or will never reach its gate.
  Task<Result<void>> enter_gate(wire::Incarnation k, std::uint64_t epoch);
  // Lets the instance pass its gate and run as k until `deadline`. A repeated call renews the lease.
  Task<Result<void>> open_gate(wire::Incarnation k, Nanos deadline);
  // Terminates the instance and releases what the migration uses here, like FreeTarget. Idempotent.
  Task<> free();
  // Records for the report that communicators were created in the pause.
  void communicators_are_made(Nanos at) noexcept { communicators_made_at_ = at; }
  // Returns the measurements. They are complete after the instance runs.
  [[nodiscard]] const std::optional<wire::TargetReport>& report() const noexcept { return report_; }
  [[nodiscard]] const migration::HandoverInfo& info() const noexcept { return info_; }
  [[nodiscard]] std::shared_ptr<Job> job() const { return job_; }

 private:
  enum class Stage : std::uint8_t {
    kNew,
    kPreparing,
    kPrepared,
    kComparing,
    kReceiving,
    kVerified,
    kMeasured,
    kAbandoned,
    kFreed
  };
  enum class InstanceEnd : std::uint8_t { kNone, kDied, kFinished };

  [[nodiscard]] bool is_over() const { return stage_ >= Stage::kAbandoned; }
  void emit(migration::TargetEvent event);
  void fail(const Error& error);
  Task<> prepare();
  Task<Result<wire::Bytes>> prepare_standby();
  [[nodiscard]] Result<void> check_plan(const wire::MigrationPlan& plan) const;
  Task<Result<void>> start_instance();
  Task<Result<void>> export_memory();
  Task<Result<void>> open_session(std::shared_ptr<MoverProcess> process, wire::MigrationPlan plan);
  void on_mover(mover::Packet packet);
  Task<> handle_arrived();
  Task<Result<void>> handle(mover::Packet packet);
  void on_verified(const mover::Verified& verified, std::vector<UniqueFd> descriptors);
  Task<> compare(wire::Bytes payload);
  void order_run(const migration::RunInstance& run);
  Task<> renew_lease(std::shared_ptr<KeeperLink> keeper, Nanos deadline);
  Task<> run_orders();
  Task<Result<void>> run_instance(RunOrder& order);
  // Counts an order whose keeper was lost before the answer.
  void count_lost_order();
  // Checks whether orders were lost so often, and for so long, that the instance is not expected to run.
  [[nodiscard]] bool is_hopeless() const;
  // Terminates the instance of this migration. Returns the reason as kAborted, after the exit is proven.
  Task<Result<void>> give_up_instance();
  // Checks whether the instance is this migration's own, and not the job's only process.
  [[nodiscard]] bool is_own() const { return job_ && job_->record().migration == info_.migration; }
  Task<> release_memory();
  void learn();
  void attach_to(const std::shared_ptr<Job>& job);
  void on_local(const local::Body& body);
  void report_end();
  [[nodiscard]] bool has_finished() const;

  MigrationContext& context_;
  SessionPort& events_;
  migration::HandoverInfo info_;
  migration::HandoverKey key_;
  std::unique_ptr<TargetMode> mode_;
  std::shared_ptr<Job> job_;
  std::uint64_t listener_ = 0;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::deque<mover::Packet> arrived_;  // memory that the mover created, followed by its message that all
                                       // memory is verified
  std::uint64_t released_ = 0;         // number of regions that the source's job has freed since
  Nanos communicators_made_at_ = 0;    // time at which the communicators were created in the pause; 0 if they
                                       // were created before the pause
  std::optional<wire::TargetReport> report_;
  std::optional<RunOrder> order_;    // the newest order that has not begun yet
  std::optional<RunOrder> running_;  // the order in progress
  wire::Incarnation ran_as_ = 0;     // incarnation that the instance ran as; 0 if it has not run as far as
                                     // this agent knows
  std::uint32_t lost_orders_ = 0;    // number of lost orders since the last one that succeeded
  std::chrono::steady_clock::time_point first_lost_;  // time of the first of these lost orders
  Stage stage_ = Stage::kNew;
  InstanceEnd end_ = InstanceEnd::kNone;
  bool gave_up_ = false;     // true if the instance was terminated because its keeper was lost at every order
  bool has_failed_ = false;  // true after a failure; VERIFIED is then no longer reported
  bool handling_ = false;    // true while handle_arrived() is in progress
  bool ordering_ = false;    // true while run_orders() is in progress
  bool opening_ = false;     // true while the order to open the gate is sent and not yet answered
  AsyncMutex gate_;          // allows one order to the gate at a time
};

}  // namespace ckpt::agent
