// SPDX-License-Identifier: Apache-2.0
// The types that the three machines share: timing, actions, and the form of a step.
//
// A machine is a value (its state) and one pure function
//     Result<Step<State>> step(const State&, const Event&, Nanos now, const Timing&)
// with no I/O, clock or log inside. `now` is CLOCK_BOOTTIME of the driver's node when it took the event from
// its queue. An event that cannot happen in a state is an error and changes nothing; a late duplicate is a
// step without actions.
//
// The driver executes a step's actions strictly in order. WriteRecord ends only when the record is durable:
// that order is SW-2. If it fails cleanly (nothing written), the driver drops the rest of the step's actions.
// It goes back to the state before the step and feeds RecordFailed. How a driver runs machines is written in
// driver.md beside this file.
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
  std::uint32_t lease_term_ms = 10'000;  // how long a lease lasts at its holder, from the request on
  std::uint32_t lease_drift_ms = 500;    // the grantor waits this much longer (SW-9)
  std::uint32_t lease_renew_ms = 3'000;  // the holder asks again
  std::uint32_t lease_margin_ms = 20;    // a lease with less than this left is not used
  std::uint32_t lend_term_ms =
      10'000;                        // for what a waiting source lends (SW-10); of no coordinator's setting,
                                     // so that it is the same after a restart
  std::uint32_t poll_ms = 500;       // unanswered messages are sent again
  std::uint32_t silence_ms = 3'000;  // a side without a message for this long is silent
  std::uint32_t pause_timeout_ms = 60'000;   // a job that reaches no barrier within this is left alone
  std::uint32_t switch_timeout_ms = 10'000;  // a paused source asks the target to give up after this
  std::uint32_t migration_timeout_ms = 600'000;
};

enum class Timer : std::uint8_t {
  kPoll = 1,       // send unanswered messages again
  kPause = 2,      // source: the job reached no barrier
  kSwitch = 3,     // source: nothing decided since the final manifest was acknowledged (or since a restart)
  kLease = 4,      // holder: renew
  kMigration = 5,  // coordinator: the user's --timeout
};
[[nodiscard]] std::string_view to_string(Timer timer) noexcept;

// ---- actions of every machine ----
// Sends `body` to `to`. `from` is the party that states it; a statement of another party is only relayed. Best
// effort, never waited for; to the other agent by every path (directly, through the coordinator, or both).
struct Send {
  Send(Role stated_by, Role receiver, wire::Body what)
      : from(stated_by), to(receiver), body(std::move(what)) {}
  friend bool operator==(const Send&, const Send&) = default;
  Role from;
  Role to;
  wire::Body body;
};
// Durable before the next action. See above for failure.
struct WriteRecord {
  explicit WriteRecord(Record what) : record(std::move(what)) {}
  friend bool operator==(const WriteRecord&, const WriteRecord&) = default;
  Record record;
};
// (Re)starts this machine's timer of that kind; TimerFired follows once.
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

// For people, logs, the job table and the exit code; nothing in the protocol depends on it.
enum class ReportKind : std::uint8_t {
  kPrepared = 1,       // C: both sides are prepared
  kGranted = 2,        // C: GRANTED(k) recorded
  kVerified = 3,       // C: the target verified
  kCommitted = 4,      // C: the target committed k: too late to abort
  kRunsAtTarget = 5,   // C, T: the job runs at the target as k
  kRunsAtSource = 6,   // C, S: the job runs at the source as k
  kRefused = 7,        // C: ended, nothing was touched (exit 5)
  kAborted = 8,        // C: ended, the job runs on at the source (exit 1 or 2)
  kClosedSource = 9,   // C: ended, the job runs on at the source (exit 1 or 2)
  kRestored = 10,      // C: ended, the source goes on from the barrier after the target had run (exit 3)
  kClosedTarget = 11,  // C: ended, the target owns the job (exit 0)
  kAbortTooLate = 12,  // C: an abort was asked for, but the target committed
  kWaits = 13,         // S: paused and asking; T: stopped and asking (SW-16)
  kReleased = 14,      // S: memory may go
  kGaveUp = 15,        // T: relinquished; S: left this migration before its barrier
  kJobDied = 16,       // S, T: the owner's job itself died
  kForgotten = 17,     // C: the sides know more than the records here: they are asked, nothing is decided yet
};
[[nodiscard]] std::string_view to_string(ReportKind kind) noexcept;
struct Report {
  Report(ReportKind what, Incarnation incarnation = 0, Reason why = {})
      : kind(what), k(incarnation), reason(std::move(why)) {}
  friend bool operator==(const Report&, const Report&) = default;
  ReportKind kind;
  Incarnation k;
  Reason reason;
};

// ---- actions of both agents ----
// The instance on this side runs as incarnation k until `deadline` (CLOCK_BOOTTIME; none: for good). The
// driver orders the keeper, which sets the deadline before it opens the gate (SW-11), lets a stopped rank go
// on, and refuses a deadline that is over. Repeated with a later deadline it is a renewal, and touches only
// the deadline. InstanceRuns(k) follows.
struct RunInstance {
  RunInstance(Incarnation incarnation, std::optional<Nanos> until) : k(incarnation), deadline(until) {}
  friend bool operator==(const RunInstance&, const RunInstance&) = default;
  Incarnation k;
  std::optional<Nanos> deadline;
};

// ---- actions of the source ----
struct
    PrepareSource {  // attach a mover, export the memory, check everything that can refuse: SourceReady | SourceRefused
  friend bool operator==(const PrepareSource&, const PrepareSource&) = default;
};
struct StartPrecopy {  // rounds begin: FirstRoundDone, PrecopyConverged, EngineFailed
  explicit StartPrecopy(Bytes bytes) : peer_payload(std::move(bytes)) {}
  friend bool operator==(const StartPrecopy&, const StartPrecopy&) = default;
  Bytes peer_payload;
};
struct PauseJob {  // all ranks to the barrier, nothing in flight: JobPaused
  friend bool operator==(const PauseJob&, const PauseJob&) = default;
};
struct RunFinalRound {  // scan and copy what is dirty; hold the final manifest back. Returns at once
  friend bool operator==(const RunFinalRound&, const RunFinalRound&) = default;
};
struct
    ReleaseManifest {  // the final manifest may leave once the last chunk is acknowledged: FinalDataAcknowledged
  friend bool operator==(const ReleaseManifest&, const ReleaseManifest&) = default;
};
struct
    StopCopy {  // end rounds and final round, take back a pause request that no rank has answered; the job stays
  friend bool operator==(const StopCopy&, const StopCopy&) = default;
};
struct FreeSource {  // end the rank's process, drop descriptors, mappings and memory
  friend bool operator==(const FreeSource&, const FreeSource&) = default;
};

// ---- actions of the target ----
struct PrepareStandby {  // start the standby, make and populate memory: StandbyReady | StandbyRefused
  friend bool operator==(const PrepareStandby&, const PrepareStandby&) = default;
};
struct StartReceiving {  // the mover receives: FinalVerified | EngineFailed
  explicit StartReceiving(Bytes bytes) : peer_payload(std::move(bytes)) {}
  friend bool operator==(const StartReceiving&, const StartReceiving&) = default;
  Bytes peer_payload;
};
struct FreeTarget {  // end standby or instance and drop its memory; nothing to do is success
  friend bool operator==(const FreeTarget&, const FreeTarget&) = default;
};

using Action = std::variant<Send, WriteRecord, ArmTimer, DisarmTimer, Report, RunInstance, PrepareSource,
                            StartPrecopy, PauseJob, RunFinalRound, ReleaseManifest, StopCopy, FreeSource,
                            PrepareStandby, StartReceiving, FreeTarget>;
[[nodiscard]] std::string describe(const Action& action);  // one line, for scenario files and logs

template <class State>
struct Step {
  State state;
  std::vector<Action> actions;
};

// ---- events that several machines take ----
struct Message {
  Message(Role stated_by, wire::Body what) : from(stated_by), body(std::move(what)) {}
  Role from;
  wire::Body body;
};
struct TimerFired {
  explicit TimerFired(Timer which) : timer(which) {}
  Timer timer;
};
struct RecordFailed {  // the journal refused cleanly; the state is the one before the step
  explicit RecordFailed(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
struct Restarted {};   // first event of a machine rebuilt from its records
struct Superseded {};  // a later migration of the same job was announced (SW-3)
struct EngineFailed {  // mover died, link lost, roots differ three times, rounds gave up
  explicit EngineFailed(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
struct InstanceRuns {  // the keeper opened the gate for incarnation k
  explicit InstanceRuns(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct InstanceStopped {  // the keeper stopped it at its deadline
  explicit InstanceStopped(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
// The instance ran as k, and its program has ended with exit code 0, or by order.
struct InstanceFinished {
  explicit InstanceFinished(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct InstanceDied {  // the job's process (source), the standby or instance (target) is gone
  explicit InstanceDied(Reason why) : reason(std::move(why)) {}
  Reason reason;
};

// A lease as its holder sees it (SW-9): asked for at several times, answered for one of them.
struct HeldLease {
  Incarnation k = 0;
  Nanos deadline = 0;
  std::vector<Nanos> asked;  // times of the requests still unanswered, newest last
  friend bool operator==(const HeldLease&, const HeldLease&) = default;
};

// A request for k leaves at `now`; only answers to requests of this life of the holder count.
void ask_lease(HeldLease& lease, Incarnation k, Nanos now);
// True if the answer made the lease longer, and it lasts.
bool take_lease(HeldLease& lease, const wire::Lease& answer, Nanos now, const Timing& timing);
[[nodiscard]] bool lasts(const HeldLease& lease, Nanos now, const Timing& timing) noexcept;

}  // namespace ckpt::migration
