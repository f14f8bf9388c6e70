// SPDX-License-Identifier: Apache-2.0
// The types that the three machines share: timing, actions, and the form of a step.
//
// A machine is a value (its state) and one pure function
//     Result<Step<State>> step(const State&, const Event&, Nanos now, const Timing&)
// without I/O, clock or log inside. `now` is CLOCK_BOOTTIME of the driver's node at the moment when the
// driver took the event from its queue. An event that is impossible in a state is an error and changes
// nothing. A late duplicate is a step without actions.
//
// The driver executes a step's actions strictly in order. WriteRecord ends only when the record is durable:
// that order is SW-2. If WriteRecord fails cleanly (nothing written), the driver drops the rest of the step's
// actions. The driver returns to the state before the step and delivers RecordFailed. The file driver.md in
// this folder describes how a driver runs machines.
// Threads: value types; a machine belongs to one driver thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/handover/records.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::migration {

struct Timing {
  std::uint32_t lease_term_ms = 10'000;  // the duration of a lease at its holder, from the request on
  std::uint32_t lease_drift_ms = 500;    // the additional time that the grantor waits (SW-9)
  std::uint32_t lease_renew_ms = 3'000;  // the interval after which the holder requests a renewal
  std::uint32_t lease_margin_ms = 20;    // the minimum remaining time of a lease that is used
  std::uint32_t lend_term_ms = 10'000;   // the term of leases from a waiting source (SW-10); independent of
                                         // coordinator settings, so that it is constant across restarts
  std::uint32_t poll_ms = 500;           // the interval after which unanswered messages are sent again
  std::uint32_t silence_ms = 3'000;      // the time without a message after which a side counts as silent
  std::uint32_t pause_timeout_ms = 60'000;  // the time in which a job must reach its barrier; otherwise it is
                                            // not paused
  std::uint32_t handover_timeout_ms =
      10'000;  // the time after which a paused source requests that the target give up
  std::uint32_t migration_timeout_ms = 600'000;
};

enum class Timer : std::uint8_t {
  kPoll = 1,       // sends unanswered messages again
  kPause = 2,      // at the source: the job reached no barrier in time
  kHandover = 3,   // at the source: nothing was decided since the final manifest was acknowledged, or since a
                   // restart
  kLease = 4,      // at the holder: renews the lease
  kMigration = 5,  // at the coordinator: the user's --timeout
};
[[nodiscard]] std::string_view to_string(Timer timer) noexcept;

// ---- actions of every machine ---- Sends `body` to `to`. `from` is the party that makes the statement; a
// statement of another party is only relayed. Delivery is best effort, and no step waits for it. A message to
// the other agent takes every path: directly, through the coordinator, or both.
struct Send {
  Send(Role stated_by, Role receiver, wire::Body what)
      : from(stated_by), to(receiver), body(std::move(what)) {}
  friend bool operator==(const Send&, const Send&) = default;
  Role from;
  Role to;
  wire::Body body;
};
// A record that is durable before the next action. The head of this file describes failures.
struct WriteRecord {
  explicit WriteRecord(Record what) : record(std::move(what)) {}
  friend bool operator==(const WriteRecord&, const WriteRecord&) = default;
  Record record;
};
// Starts or restarts this machine's timer of the given kind. TimerFired follows once.
struct ArmTimer {
  ArmTimer(Timer which, std::uint32_t after_ms) : timer(which), ms(after_ms) {}
  friend bool operator==(const ArmTimer&, const ArmTimer&) = default;
  Timer timer;
  std::uint32_t ms;
};
struct DisarmTimer {
  explicit DisarmTimer(Timer which) : timer(which) {}
  friend bool operator==(const DisarmTimer&, const DisarmTimer&) = default;
  Timer timer;
};

// Reports for people, logs, the job table and the exit code. Nothing in the protocol depends on a report.
enum class ReportKind : std::uint8_t {
  kPrepared = 1,       // coordinator: both sides are prepared
  kGranted = 2,        // coordinator: GRANTED(k) is recorded
  kVerified = 3,       // coordinator: the target has verified
  kCommitted = 4,      // coordinator: the target has committed k, so it is too late to abort
  kRunsAtTarget = 5,   // coordinator, target: the job runs at the target as k
  kRunsAtSource = 6,   // coordinator, source: the job runs at the source as k
  kRefused = 7,        // coordinator: ended, nothing was changed (exit 5)
  kAborted = 8,        // coordinator: ended, the job still runs at the source (exit 1 or 2)
  kClosedSource = 9,   // coordinator: ended, the job still runs at the source (exit 1 or 2)
  kRestored = 10,      // coordinator: ended, the source continues from the barrier after the target had run
                       // (exit 3)
  kClosedTarget = 11,  // coordinator: ended, the target owns the job (exit 0)
  kAbortTooLate = 12,  // coordinator: an abort was requested, but the target has committed
  kWaits = 13,         // source: paused and sending queries; target: stopped and sending queries (SW-16)
  kReleased = 14,      // source: its memory may be freed
  kGaveUp = 15,        // target: relinquished; source: left this migration before its barrier
  kJobDied = 16,       // source, target: the owner's job itself exited
  kForgotten = 17,     // coordinator: the sides know more than the records here; they are queried, and
                       // nothing is decided yet
};
[[nodiscard]] std::string_view to_string(ReportKind kind) noexcept;
struct Report {
  Report(ReportKind what, Incarnation incarnation = 0, Reason cause = {})
      : kind(what), k(incarnation), reason(std::move(cause)) {}
  friend bool operator==(const Report&, const Report&) = default;
  ReportKind kind;
  Incarnation k;
  Reason reason;
};

// ---- actions of both agents ---- Lets the instance on this side run as incarnation k until `deadline`
// (CLOCK_BOOTTIME). Without a deadline, the instance runs permanently. The driver orders the keeper to do so.
// The keeper sets the deadline before it opens the gate (SW-11). It resumes a stopped rank, and it refuses a
// deadline that has passed. A repetition with a later deadline is a renewal and changes only the deadline.
// InstanceRuns(k) follows.
struct RunInstance {
  RunInstance(Incarnation incarnation, std::optional<Nanos> until) : k(incarnation), deadline(until) {}
  friend bool operator==(const RunInstance&, const RunInstance&) = default;
  Incarnation k;
  std::optional<Nanos> deadline;
};

// ---- actions of the source ----
struct PrepareSource {  // attaches a mover, exports the memory, and checks everything that can refuse;
                        // SourceReady or SourceRefused follows
  friend bool operator==(const PrepareSource&, const PrepareSource&) = default;
};
struct StartPrecopy {  // begins rounds; FirstRoundDone, PrecopyConverged or EngineFailed follows
  explicit StartPrecopy(Bytes bytes) : peer_payload(std::move(bytes)) {}
  friend bool operator==(const StartPrecopy&, const StartPrecopy&) = default;
  Bytes peer_payload;
};
struct PauseJob {  // pauses all ranks at the barrier with nothing in flight; JobPaused follows
  friend bool operator==(const PauseJob&, const PauseJob&) = default;
};
struct RunFinalRound {  // scans and copies dirty memory, and holds the final manifest back; returns at once
  friend bool operator==(const RunFinalRound&, const RunFinalRound&) = default;
};
struct ReleaseManifest {  // lets the final manifest be sent once the last chunk is acknowledged;
                          // FinalDataAcknowledged follows
  friend bool operator==(const ReleaseManifest&, const ReleaseManifest&) = default;
};
struct
    StopCopy {  // ends rounds and the final round, and cancels a pause request that no rank has answered; the
                // job and its memory stay
  friend bool operator==(const StopCopy&, const StopCopy&) = default;
};
struct FreeSource {  // terminates the rank's process, and drops descriptors, mappings and memory
  friend bool operator==(const FreeSource&, const FreeSource&) = default;
};

// ---- actions of the target ----
struct PrepareStandby {  // starts the standby, and makes and populates memory; StandbyReady or StandbyRefused
                         // follows
  friend bool operator==(const PrepareStandby&, const PrepareStandby&) = default;
};
struct StartReceiving {  // lets the mover receive; FinalVerified or EngineFailed follows
  explicit StartReceiving(Bytes bytes) : peer_payload(std::move(bytes)) {}
  friend bool operator==(const StartReceiving&, const StartReceiving&) = default;
  Bytes peer_payload;
};
struct FreeTarget {  // terminates the standby or instance and drops its memory; succeeds if there is nothing
                     // to do
  friend bool operator==(const FreeTarget&, const FreeTarget&) = default;
};

using Action = std::variant<Send, WriteRecord, ArmTimer, DisarmTimer, Report, RunInstance, PrepareSource,
                            StartPrecopy, PauseJob, RunFinalRound, ReleaseManifest, StopCopy, FreeSource,
                            PrepareStandby, StartReceiving, FreeTarget>;
[[nodiscard]] std::string describe(const Action& action);  // returns one line for scenario files and logs

template <class State>
struct Step {
  State state;
  std::vector<Action> actions;
};

// ---- events that several machines receive ----
struct Message {
  Message(Role stated_by, wire::Body what) : from(stated_by), body(std::move(what)) {}
  Role from;
  wire::Body body;
};
struct TimerFired {
  explicit TimerFired(Timer which) : timer(which) {}
  Timer timer;
};
struct RecordFailed {  // the journal refused the record and wrote nothing; the state is the state before the
                       // step
  explicit RecordFailed(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};
struct Restarted {};   // the first event of a machine that was rebuilt from its records
struct Superseded {};  // a later migration of the same job was announced (SW-3)
struct EngineFailed {  // the mover exited, the link was lost, roots differed three times, or the rounds did
                       // not converge
  explicit EngineFailed(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};
struct InstanceRuns {  // the keeper opened the gate for incarnation k
  explicit InstanceRuns(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct InstanceStopped {  // the keeper stopped the instance at its deadline
  explicit InstanceStopped(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
// The instance ran as k, and its program has exited with code 0 or by an order.
struct InstanceFinished {
  explicit InstanceFinished(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct InstanceDied {  // the job's process (source), or the standby or instance (target), has exited
  explicit InstanceDied(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};

// A lease as its holder sees it (SW-9): it may be requested several times, and each answer belongs to one
// request.
struct HeldLease {
  Incarnation k = 0;
  Nanos deadline = 0;
  std::vector<Nanos> asked;  // the times of the unanswered requests, newest last
  friend bool operator==(const HeldLease&, const HeldLease&) = default;
};

// Notes that a request for k is sent at `now`. Only answers to requests since the holder's last start count.
void ask_lease(HeldLease& lease, Incarnation k, Nanos now);
// Applies the grantor's answer to the lease. Returns true if the answer extended the lease and the lease has
// not expired.
bool accept_lease(HeldLease& lease, const wire::Lease& answer, Nanos now, const Timing& timing);
[[nodiscard]] bool lasts(const HeldLease& lease, Nanos now, const Timing& timing) noexcept;

}  // namespace ckpt::migration
