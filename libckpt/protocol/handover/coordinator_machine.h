// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of a handover (SW-1, SW-3, SW-6, SW-7, SW-9, SW-12, SW-15). See handover_types.h for
// the form of a machine.
//
//   Begun -> Granted(k) -> Closed(source|target)
//      \---> Aborted
//
// Forgotten: a store was lost or replaced by an older copy. An agent then knows more of the migration than
// the records here. Nothing is decided until every lease that may have been granted has expired; then both
// sides' answers decide (docs/protocol.md). A restarted coordinator cannot know whether its records are old.
// It grants no lease until the other side has answered or one term has passed. An abort is requested from the
// sides although nothing was granted.
#pragma once

#include <array>

#include "libckpt/protocol/handover/handover_types.h"

namespace ckpt::migration {

namespace coordinator {
struct Begun {
  std::optional<Bytes> source_payload;  // the payload of the source; set once Prepared was received
  std::optional<Bytes> target_payload;
  friend bool operator==(const Begun&, const Begun&) = default;
};
struct Granted {
  Incarnation k = 0;
  Nanos lease_until = 0;  // the expiry of the last lease that may have been granted for k, by the grantor's
                          // clock
  bool lent = false;      // whether a lease for k was granted since the coordinator started
  bool withheld = false;  // whether a lease was requested and waits for the other side's answer
  bool verified = false;
  Incarnation committed = 0;   // the incarnation of the received COMMITTED; 0 if none was received
  Incarnation ran_target = 0;  // the incarnation of the received RUNS; 0 if none was received
  Incarnation ran_source = 0;
  bool source_waits = false;  // whether the source has sent a query, so that it is paused with BARRIER
  friend bool operator==(const Granted&, const Granted&) = default;
};
struct Aborted {
  bool source_knows = false;
  bool target_knows = false;
  friend bool operator==(const Aborted&, const Aborted&) = default;
};
struct Closed {
  Side side = Side::kInvalid;
  bool source_knows = false;
  bool target_knows = false;
  friend bool operator==(const Closed&, const Closed&) = default;
};
// A phase without a record: only the agents' reports are known. The fields are the agents' reports after
// `undecided_until`.
struct Forgotten {
  Nanos undecided_until = 0;  // the time until which an earlier lease may last
  bool source_waits = false;  // whether the source waits with BARRIER, or with RESUMED(source_k) under a
                              // lease
  Incarnation source_k = 0;   // the incarnation in which the source runs again; 0 if it has not run since its
                              // barrier
  Incarnation target_k = 0;   // the incarnation of the received COMMITTED; 0 if none was received
  friend bool operator==(const Forgotten&, const Forgotten&) = default;
};
}  // namespace coordinator

struct CoordinatorState {
  HandoverInfo info;
  std::variant<coordinator::Begun, coordinator::Granted, coordinator::Aborted, coordinator::Closed,
               coordinator::Forgotten>
      phase;
  bool abort_wanted = false;
  Reason reason;                              // the reason of the abort, or the first failure reported
  std::optional<wire::Resumed> resumed = {};  // the source's statement, to be relayed to the target
  Incarnation owner_k = 0;          // the incarnation that the owner reports once the migration is closed; 0
                                    // before that
  std::array<bool, 2> connected{};  // whether the side is connected: [0] for the source, [1] for the target
  std::array<Nanos, 2> last_message{};
  Nanos unsure_until = 0;          // after a restart: the time until which a lease may last that is missing
                                   // in these records
  std::array<bool, 2> answered{};  // whether the side has answered since the restart, consistently with the
                                   // records
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

struct MigrateRequested {};
struct AbortRequested {
  AbortRequested(bool from_timeout, Reason cause) : timeout(from_timeout), reason(std::move(cause)) {}
  bool timeout;  // whether the cause is a timeout, which does not abort a reachable target that reported
                 // VERIFIED
  Reason reason;
};
struct AgentConnected {
  explicit AgentConnected(Side which) : side(which) {}
  Side side;
};
struct AgentDisconnected {
  explicit AgentDisconnected(Side which) : side(which) {}
  Side side;
};
// The operator's confirmation (or a fence command's proof) that the other side is dead.
struct ResolveRequested {
  explicit ResolveRequested(Side keep) : side(keep) {}
  Side side;
};

using CoordinatorEvent =
    std::variant<MigrateRequested, Message, AbortRequested, AgentConnected, AgentDisconnected,
                 ResolveRequested, TimerFired, RecordFailed, Restarted>;

Result<Step<CoordinatorState>> step(const CoordinatorState& state, const CoordinatorEvent& event, Nanos now,
                                    const Timing& timing);
Result<CoordinatorState> restore_coordinator(const Record& newest);
// Returns the state of a migration that agents report and that has no record. No earlier lease lasts beyond
// `undecided_until`. The first event must be Restarted.
CoordinatorState forgotten_coordinator(HandoverInfo info, Nanos undecided_until);

// Returns whether the outcome is recorded, so that migration m+1 of the job may begin.
[[nodiscard]] bool is_closed(const CoordinatorState& state) noexcept;
// Returns whether the migration is closed and both sides know it.
[[nodiscard]] bool is_settled(const CoordinatorState& state) noexcept;
// Returns, once closed, the incarnation of the owner, which is the `base` of the job's next migration.
// Returns 0 while the owner has not reported it.
[[nodiscard]] inline Incarnation owner_incarnation(const CoordinatorState& state) noexcept {
  return is_closed(state) ? state.owner_k : 0;
}
[[nodiscard]] std::string_view phase_name(const CoordinatorState& state) noexcept;

}  // namespace ckpt::migration
