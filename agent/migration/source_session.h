// SPDX-License-Identifier: Apache-2.0
// The source's effects of one migration: the running rank, its keeper, and the mover's sending session. Each
// action of the machine returns at once, and its result is an event. The path of the pause contains no
// coordinator, no log and no JSON. The path is Paused -> FinalRound to the mover, while the driver makes
// BARRIER durable, -> ReleaseManifest. State other than device memory belongs to the mode (mode.h).
//
// The machine (libckpt/protocol/handover/source_machine.h) decides. This class only stores the progress of
// its orders, in three values.
//   Stage, of the copy:
//     kNew       --PrepareSource-->          kPreparing
//     kPreparing --prepare() is over-->      kPrepared    SourceReady or SourceRefused was emitted
//     kPreparing --StopCopy-->               kAbandoned   prepare() goes on, and then releases what it holds
//     kAbandoned --prepare() is over-->      kStopped
//     kNew, kPrepared --StopCopy-->          kStopped
//     any        --FreeSource-->             kFreed       for ever: the job is the target's
//     A session of an agent that was restarted begins at kNew and is ordered to go back or to free. From
//     kAbandoned on nothing is sent to the mover, and no failure is emitted: the machine has decided.
//     RunInstance changes no stage; the job goes back in each of them but kFreed.
//   HostStatePath, of the host state in the final round: chosen when the copy starts.
//   Manifest, of the last message to the target: it needs both BARRIER and save(), in any order.
//     kHeld --save() is over--> kAwaitsBarrier --ReleaseManifest--> kReleased
//     kHeld --ReleaseManifest--> kAwaitsSave --save() is over--> kReleased
//
// Threads: the event loop. Ownership: shared with its coroutines. The mover's session and the descriptors end
// with StopCopy or FreeSource. Errors: SourceRefused before anything was changed, EngineFailed later.
#pragma once

#include <memory>
#include <optional>

#include "agent/migration/modes/migration_context.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/pause_budget.h"
#include "agent/migration/ports/session_port.h"
#include "agent/mover_client/memory_export.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

class SourceSession : public std::enable_shared_from_this<SourceSession> {
 public:
  // `events` receives the events of the session.
  SourceSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info);
  SourceSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info,
                std::unique_ptr<SourceMode> mode);
  ~SourceSession();

  void perform(const migration::Action& action);
  // Pauses a rank of a gang at the barrier on which all ranks have agreed (PauseJob; GANG-1).
  void pause_at(std::uint64_t barrier);
  void set_limits(std::int64_t max_downtime_ns, std::int64_t bandwidth);
  // Sends the target the reason why the source ends the migration, because the target's message may reach the
  // coordinator first.
  void set_failure_reason(std::string reason) { failure_reason_ = std::move(reason); }
  // Returns the measurements. They exist only after the rank has paused.
  [[nodiscard]] const std::optional<wire::SourceReport>& report() const noexcept { return report_; }
  [[nodiscard]] const migration::HandoverInfo& info() const noexcept { return info_; }
  // Returns the job's instance on this node, if the instance is still known.
  [[nodiscard]] std::shared_ptr<Job> job() const;

 private:
  enum class Stage : std::uint8_t { kNew, kPreparing, kPrepared, kAbandoned, kStopped, kFreed };
  enum class HostStatePath : std::uint8_t {
    kNone,       // there is no host state to send
    kAfterSave,  // the final round begins after save() has provided the complete state
    kGrows,      // the final round begins in parallel with save(), which fills a GrowingHostState
  };
  enum class Manifest : std::uint8_t { kHeld, kAwaitsBarrier, kAwaitsSave, kReleased };

  [[nodiscard]] bool is_over() const { return stage_ >= Stage::kAbandoned; }
  void emit(migration::SourceEvent event);
  void fail(const Error& error);
  Task<> prepare();
  Task<Result<void>> prepare_memory();
  Task<Result<void>> open_session(std::shared_ptr<Job> job, wire::MigrationPlan plan);
  void start_precopy(const wire::Bytes& payload);
  Task<> pause(std::uint64_t barrier);
  Task<> save();
  Task<> keep_limit();
  void run_final_round(HostState state);
  Result<void> send_host_state_file(bool target_reads_log);
  void host_grew(std::uint64_t filled, bool whole);
  void advance_manifest(Manifest waiting_for_this, Manifest waits_for_other);
  void on_mover(mover::Packet packet);
  void report_progress(const mover::Progress& progress);
  Task<> converge();
  void on_counters(const mover::SourceCounters& counters, Nanos final_received_ns, Nanos last_ack_ns);
  Task<> run_instance(wire::Incarnation k, std::optional<Nanos> deadline);
  Task<bool> go_back(std::uint64_t order);
  Task<> stop_copy();
  Task<> free();
  void attach_to(const std::shared_ptr<Job>& job);
  void on_local(const local::Body& body);
  Task<> release_memory();

  MigrationContext& context_;
  SessionPort& events_;
  migration::HandoverInfo info_;
  migration::HandoverKey key_;
  std::unique_ptr<SourceMode> mode_;
  std::shared_ptr<Job> job_;
  std::uint64_t listener_ = 0;
  std::shared_ptr<MoverSession> session_;
  std::shared_ptr<MemoryExport> export_;
  std::unique_ptr<KeeperLink::Exchange> pausing_;
  std::optional<PausedState> paused_;
  std::optional<wire::SourceReport> report_;
  std::string failure_reason_;
  PauseBudget budget_;
  Nanos verified_received_ns_ = 0;
  Nanos mover_estimate_ns_ = 0;  // the mover's last estimate of the pause
  bool within_node_ = false;
  AsyncMutex saving_;         // lets a save and a return to the source run one after the other
  std::uint64_t orders_ = 0;  // number of RunInstance orders so far
  Stage stage_ = Stage::kNew;
  bool has_failed_ = false;
  HostStatePath host_path_;
  Manifest manifest_ = Manifest::kHeld;
};

}  // namespace ckpt::agent
