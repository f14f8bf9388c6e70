// SPDX-License-Identifier: Apache-2.0
// The migration modes (docs/design.md §3) as the sessions of a migration, a snapshot or a restore see them
// (job_operation.h). A mode handles the state beside device memory at the source, and the instance that goes
// on at the target. cooperative_mode.h: a standby that has started already, and host state that the program
// names. swap_mode.h: the same process, its context saved and restored by the driver. process_mode.h: the
// process goes, too. adopted_mode.h: a process that gpumigrate has not started.
// Threads: the event loop; one call at a time, but leave() and free(). Ownership: a session owns its mode.
// The job is the session's and is passed in, since an agent that was restarted finds it again. Errors: the
// reason why the step did not happen; each may be repeated.
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

// Host state that travels with the final round; empty if there is none.
struct HostState {
  HostState() = default;
  HostState(UniqueFd memory_file, std::uint64_t size) : file(std::move(memory_file)), bytes(size) {}
  UniqueFd file;
  std::uint64_t bytes = 0;
  Nanos paused_ns = 0;  // at a target: when its mover learnt of the pause; 0: there is none
};

// Host state that is written into a memory file while it is sent.
struct GrowingHostState {
  UniqueFd file;
  std::uint64_t most = 0;
  std::uint64_t expected = 0;
};
// `filled` is the number of bytes that are there; `whole`: these are all. Called on the loop.
using HostGrowth = std::function<void(std::uint64_t filled, bool whole)>;

// The progress of host state that leaves ahead of the pause: the bytes to send so far, and those sent.
struct HostProgress {
  std::uint64_t total_bytes = 0;
  std::uint64_t done_bytes = 0;
};

class SourceMode {
 public:
  virtual ~SourceMode() = default;
  // Returns growing host state, after check(). The final round then begins beside save(), which returns no
  // bytes but reports its progress to the callback. The state may grow before the pause, if the target reads
  // a memory log.
  virtual std::optional<GrowingHostState> growing_host_state(HostGrowth, bool /*target_reads_log*/) {
    return std::nullopt;
  }
  // Reports how much of the host state was given to the network.
  virtual void host_state_sent(std::uint64_t /*bytes*/) {}
  [[nodiscard]] virtual HostProgress host_progress() const { return {}; }
  // Waits, before the pause, until the rest of the host state is short, or gets no shorter.
  virtual Task<> settle_host_state() { co_return; }
  // True if the final round carries the result of save(), and so waits for it. Else both run at once, and the
  // manifest waits.
  [[nodiscard]] virtual bool sends_host_state() const = 0;
  // Checks that the job can be moved in this mode, before anything is touched. kRefused otherwise.
  virtual Task<Result<void>> check(std::shared_ptr<Job> job) = 0;
  // Checks that the target can take the job, after check() and before anything is paused. kRefused otherwise.
  virtual Result<void> check_target(const EndpointPayload&) { return ok(); }
  // Returns the work of a pause here and at the target beside the copy of device memory, after check(). After
  // settle_host_state() it counts how much the job writes.
  [[nodiscard]] virtual PauseWork pause_work(const Job& job, const local::StateSummary& summary) const = 0;
  // Returns the payload for compare() at the target, after check().
  [[nodiscard]] virtual wire::Bytes payload() const { return {}; }
  // Returns the needs that a target must meet (check_needs()), after check().
  [[nodiscard]] virtual wire::MoveNeeds needs() const { return {}; }
  // Saves the state of the paused rank. The target then has all it needs but device memory. Measurements go
  // into `report`.
  virtual Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                                       wire::SourceReport& report) = 0;
  // Prepares the rank to be resumed here, even if save() failed in the middle, was never called, or was
  // called by an earlier agent.
  virtual Task<Result<void>> go_back(std::shared_ptr<Job> job) = 0;
  // Releases memory kept for sending: the migration sends nothing more, and no call of save() is under way.
  // Idempotent.
  virtual Task<> let_go() { co_return; }
  // Ends the rest of the job here, once it runs at the target. Idempotent.
  virtual Task<> leave(std::shared_ptr<Job> job) = 0;
};

// The end of the lease of an order. All copies see a renewal, since an order may take longer than its lease.
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
  bool has_run = false;  // it has run as k, and a pause that holds it is ended by another operation
  LeaseEnd deadline;
};

class TargetMode {
 public:
  virtual ~TargetMode() = default;
  // Returns the instance of an earlier agent's preparation, or null.
  virtual std::shared_ptr<Job> find() = 0;
  // Starts and returns the instance, or null: there is none before bring().
  virtual Task<Result<std::shared_ptr<Job>>> start() = 0;
  // Waits until the instance can take memory.
  virtual Task<Result<void>> ready(std::shared_ptr<Job> job) = 0;
  // Checks that the source's description of the job fits this node, beside the rounds and before anything is
  // paused. kRefused otherwise.
  virtual Task<Result<void>> compare(wire::Bytes payload);
  // Makes the instance from the kept host state, if there is none after COMMITTED. kAborted: that is
  // impossible.
  virtual Task<Result<std::shared_ptr<Job>>> bring();
  // True if the instance has memory of its own, which the mover attaches. Else the mover makes it and
  // take_memory() gets it.
  [[nodiscard]] virtual bool has_memory() const = 0;
  virtual Task<Result<void>> take_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                         std::vector<UniqueFd> descriptors) = 0;
  // Drops regions of take_memory() that the job has freed since: nothing here holds them afterwards.
  virtual Task<Result<void>> drop_memory(std::shared_ptr<Job> job, std::vector<std::uint64_t> regions);
  // Keeps verified host state for an agent that is started after COMMITTED.
  virtual Result<void> keep(std::shared_ptr<Job> job, HostState state) = 0;
  // Runs the instance as `order.k`. kAborted: it never will run here. The report's points are set where they
  // are reached for the first time (`report` may be null).
  virtual Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) = 0;
  // Replaces run() for a rank of a gang: it takes its state over and waits behind its gate. `epoch` is that
  // of its groups. Repeated without harm. kAborted: it never will here.
  virtual Task<Result<void>> enter_gate(std::shared_ptr<Job> job, wire::Incarnation k, std::uint64_t epoch);
  // Returns the work that run() did here.
  [[nodiscard]] virtual PauseWork pause_work(const Job& job) const = 0;
  // Clean up after the migration's end: first the instance, if it is this migration's own, then the rest of
  // it here. Idempotent.
  virtual Task<> end(std::shared_ptr<Job> job) = 0;
  virtual Task<> free(std::shared_ptr<Job> job) = 0;
};

// The work that a pause has in every mode.
[[nodiscard]] PauseWork common_work(PauseKind kind);
// Returns the lines that this node knows at this moment.
[[nodiscard]] PauseLines pause_lines(MigrationContext& context, PauseKind kind);
// The record of the instance that the operation makes, before it has run.
[[nodiscard]] JobRecord standby_record(const JobOperation& operation);
std::unique_ptr<SourceMode> make_source_mode(MigrationContext& context, JobOperation operation);
std::unique_ptr<TargetMode> make_target_mode(MigrationContext& context, JobOperation operation);

}  // namespace ckpt::agent
