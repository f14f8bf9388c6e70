// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of a switch (SW-1, SW-3, SW-6, SW-7, SW-9, SW-12, SW-15). See switch_types.h for the
// form of a machine.
//
//   Begun -> Granted(k) -> Closed(source|target)
//      \---> Aborted
//
// Forgotten: a store was lost, or an older copy of it came back. Then an agent knows more of the migration
// than the records here. Nothing is decided until no lease that may have been given lasts; then both sides'
// answers decide (docs/protocol.md). A restarted coordinator cannot know that its records are old. Until the
// other side has answered, or a term is over, it lends nothing. An abort is asked of the sides although
// nothing was granted.
#pragma once

#include <array>

#include "libckpt/protocol/handover/switch_types.h"

namespace ckpt::migration {

namespace coordinator {
struct Begun {
  std::optional<Bytes> source_payload;  // set: Prepared received
  std::optional<Bytes> target_payload;
  friend bool operator==(const Begun&, const Begun&) = default;
};
struct Granted {
  Incarnation k = 0;
  Nanos lease_until = 0;  // the last lease that may have been given for k, as the grantor sees it
  bool lent = false;      // a lease for k was given in this life of the coordinator
  bool withheld = false;  // one was asked for, and waits for the other side's answer
  bool verified = false;
  Incarnation committed = 0;   // COMMITTED received
  Incarnation ran_target = 0;  // RUNS received
  Incarnation ran_source = 0;
  bool source_waits = false;  // the source asked, so it is paused with BARRIER
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
// No record has this: only the agents' reports are known. The fields are their reports after
// `undecided_until`.
struct Forgotten {
  Nanos undecided_until = 0;  // until then a lease may last that was given before
  bool source_waits = false;  // with BARRIER, or with RESUMED(source_k) under a lease
  Incarnation source_k = 0;   // 0: it has not run since its barrier
  Incarnation target_k = 0;   // COMMITTED received; 0: not received
  friend bool operator==(const Forgotten&, const Forgotten&) = default;
};
}  // namespace coordinator

struct CoordinatorState {
  SwitchInfo info;
  std::variant<coordinator::Begun, coordinator::Granted, coordinator::Aborted, coordinator::Closed,
               coordinator::Forgotten>
      phase;
  bool abort_wanted = false;
  Reason reason;                              // of the abort, or the first failure reported
  std::optional<wire::Resumed> resumed = {};  // what the source stated, to be relayed to the target
  Incarnation owner_k = 0;                    // once closed: the incarnation that the owner reports; 0 before
  std::array<bool, 2> connected{};            // [0] source, [1] target
  std::array<Nanos, 2> last_message{};
  Nanos unsure_until = 0;          // of a restarted one: a lease may last that is not in these records
  std::array<bool, 2> answered{};  // since the restart, in accordance with the records
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

struct MigrateRequested {};
struct AbortRequested {
  AbortRequested(bool from_timeout, Reason why) : timeout(from_timeout), reason(std::move(why)) {}
  bool timeout;  // a timeout does not abort a reachable target that reported VERIFIED
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
// The operator's word (or a fence command's proof) that the other side is dead.
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
// The coordinator of a migration that agents report and that has no record. No earlier lease lasts beyond
// `undecided_until`. The first event is Restarted.
CoordinatorState forgotten_coordinator(SwitchInfo info, Nanos undecided_until);

[[nodiscard]] bool is_closed(const CoordinatorState& state) noexcept;   // recorded: m+1 of the job may begin
[[nodiscard]] bool is_settled(const CoordinatorState& state) noexcept;  // closed, and both sides know it
// Once closed: the incarnation of the owner, the `base` of the job's next migration; 0 while the owner has
// not reported it.
[[nodiscard]] inline Incarnation owner_incarnation(const CoordinatorState& state) noexcept {
  return is_closed(state) ? state.owner_k : 0;
}
[[nodiscard]] std::string_view phase_name(const CoordinatorState& state) noexcept;

}  // namespace ckpt::migration
