// SPDX-License-Identifier: Apache-2.0
// The migration modes (docs/design.md §3), as the sessions of a migration, a snapshot or a restore use them
// (job_operation.h). A mode handles the state other than device memory at the source, and the instance that
// continues at the target. cooperative_mode.h uses a standby that has already started, and host state that
// the program names. swap_mode.h keeps the process, and the driver saves and restores its context.
// process_mode.h also moves the process. adopted_mode.h handles a process that gpumigrate has not started.
// Threads: the event loop, one call at a time, except leave() and free(). Ownership: a session owns its mode.
// The session also owns the job and passes it in, because a restarted agent finds the job again. Errors: the
// reason why the step failed. Each step may be repeated.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/jobs/job.h"
#include "agent/migration/modes/job_operation.h"
#include "agent/migration/modes/migration_context.h"
#include "agent/pauses/pause_estimate.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {

// Host state that travels with the final round. It is empty if there is none.
struct HostState {
  HostState() = default;
  HostState(UniqueFd memory_file, std::uint64_t size) : file(std::move(memory_file)), bytes(size) {}
  UniqueFd file;
  std::uint64_t bytes = 0;
  Nanos paused_ns = 0;  // at a target, the time at which its mover received the pause; 0 if there is no pause
};

// Host state that is sent while it is written into a memory file.
struct GrowingHostState {
  UniqueFd file;
  std::uint64_t limit = 0;
  std::uint64_t expected = 0;
};
// Reports growth on the loop. `filled` is the number of available bytes. `whole` means that the state is
// complete.
using HostGrowth = std::function<void(std::uint64_t filled, bool whole)>;

// The progress of host state that is sent before the pause: the total bytes so far, and the sent bytes.
struct HostProgress {
  std::uint64_t total_bytes = 0;
  std::uint64_t done_bytes = 0;
};

class SourceMode {
 public:
  virtual ~SourceMode() = default;
  // Returns growing host state, after check(). The final round then begins in parallel with save(). save()
  // returns no bytes in that case, but reports its progress to the callback. The state may grow before the
  // pause if the target reads a memory log.
  virtual std::optional<GrowingHostState> growing_host_state(HostGrowth, bool /*target_reads_log*/) {
    return std::nullopt;
  }
  // Reports how much of the host state was passed to the network.
  virtual void host_state_sent(std::uint64_t /*bytes*/) {}
  [[nodiscard]] virtual HostProgress host_progress() const { return {}; }
  // Waits, before the pause, until the rest of the host state is short, or does not get shorter.
  virtual Task<> settle_host_state() { co_return; }
  // Returns true if the final round contains the result of save(), and so waits for it. Otherwise the final
  // round and save() run in parallel, and only the manifest waits for save().
  [[nodiscard]] virtual bool sends_host_state() const = 0;
  // Checks that the job can be moved in this mode, before anything is changed. The error is kRefused
  // otherwise.
  virtual Task<Result<void>> check(std::shared_ptr<Job> job) = 0;
  // Checks that the target can receive the job, after check() and before anything is paused. The error is
  // kRefused otherwise.
  virtual Result<void> check_target(const EndpointPayload&) { return ok(); }
  // Returns the work of a pause here and at the target, except the copy of device memory. Call this function
  // after check(). After settle_host_state() the result includes how much the job writes.
  [[nodiscard]] virtual PauseWork pause_work(const Job& job, const local::StateSummary& summary) const = 0;
  // Returns the payload for compare() at the target, after check().
  [[nodiscard]] virtual wire::Bytes payload() const { return {}; }
  // Returns the requirements that a target must meet (check_needs()), after check().
  [[nodiscard]] virtual wire::MoveNeeds needs() const { return {}; }
  // Saves the state of the paused rank. The target then has all state except device memory. Measurements are
  // stored in `report`.
  virtual Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                                       wire::SourceReport& report) = 0;
  // Prepares the rank to be resumed here. The function works even if save() failed in the middle, was never
  // called, or was called by an earlier agent.
  virtual Task<Result<void>> go_back(std::shared_ptr<Job> job) = 0;
  // Releases memory that was kept for sending. The migration must send nothing more, and no call of save()
  // may be in progress. Idempotent.
  virtual Task<> release() { co_return; }
  // Terminates the rest of the job here after it runs at the target. Idempotent.
  virtual Task<> leave(std::shared_ptr<Job> job) = 0;
};

// The deadline of an order's lease. All copies see a renewal, because an order may take longer than its
// lease.
class LeaseEnd {
 public:
  LeaseEnd(Nanos end = local::kNoDeadline) : end_(std::make_shared<Nanos>(end)) {}
  operator Nanos() const { return *end_; }
  void renew(Nanos end) { *end_ = end; }

 private:
  std::shared_ptr<Nanos> end_;
};

struct RunOrder {
  wire::Incarnation k = 0;
  bool has_run = false;  // true if the instance has already run as k; another operation then ends a pause
                         // that holds it
  LeaseEnd deadline;
};

class TargetMode {
 public:
  virtual ~TargetMode() = default;
  // Returns the instance from an earlier agent's preparation, or null.
  virtual std::shared_ptr<Job> find() = 0;
  // Starts and returns the instance. Returns null if there is none before bring().
  virtual Task<Result<std::shared_ptr<Job>>> start() = 0;
  // Waits until the instance can receive memory.
  virtual Task<Result<void>> ready(std::shared_ptr<Job> job) = 0;
  // Checks that the source's description of the job fits this node. The check runs in parallel with the
  // rounds, before anything is paused. The error is kRefused otherwise.
  virtual Task<Result<void>> compare(wire::Bytes payload);
  // Creates the instance from the stored host state, if there is none after COMMITTED. kAborted means that
  // this is impossible.
  virtual Task<Result<std::shared_ptr<Job>>> bring();
  // Checks whether the instance has its own memory, which the mover attaches. Otherwise the mover creates the
  // memory, and import_memory() receives it.
  [[nodiscard]] virtual bool has_memory() const = 0;
  virtual Task<Result<void>> import_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                           std::vector<UniqueFd> descriptors) = 0;
  // Drops regions of import_memory() that the job has freed since. Afterwards nothing here holds these
  // regions.
  virtual Task<Result<void>> drop_memory(std::shared_ptr<Job> job, std::vector<std::uint64_t> regions);
  // Stores verified host state for an agent that is started after COMMITTED.
  virtual Result<void> store_host_state(std::shared_ptr<Job> job, HostState state) = 0;
  // Runs the instance as `order.k`. kAborted means that it will never run here. The report's times are set
  // when they are reached for the first time (`report` may be null).
  virtual Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) = 0;
  // Replaces run() for a rank of a gang. The rank takes over its state and waits behind its gate. `epoch` is
  // the epoch of its groups. The call can be repeated safely. kAborted means that the rank will never reach
  // its gate here.
  virtual Task<Result<void>> enter_gate(std::shared_ptr<Job> job, wire::Incarnation k, std::uint64_t epoch);
  // Returns the work that run() did on this node.
  [[nodiscard]] virtual PauseWork pause_work(const Job& job) const = 0;
  // Cleans up after the migration's end. end() terminates the instance, if it is this migration's own. free()
  // then releases the rest on this node. Idempotent.
  virtual Task<> end(std::shared_ptr<Job> job) = 0;
  virtual Task<> free(std::shared_ptr<Job> job) = 0;
};

// Returns the work that a pause has in every mode.
[[nodiscard]] PauseWork common_work(PauseKind kind);
// Returns the cost lines that this node currently knows.
[[nodiscard]] PauseLines pause_lines(MigrationContext& context, PauseKind kind);
// Returns the record of the instance that the operation creates, before the instance has run.
[[nodiscard]] JobRecord standby_record(const JobOperation& operation);
std::unique_ptr<SourceMode> make_source_mode(MigrationContext& context, JobOperation operation);
std::unique_ptr<TargetMode> make_target_mode(MigrationContext& context, JobOperation operation);

}  // namespace ckpt::agent
