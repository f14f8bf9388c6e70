// SPDX-License-Identifier: Apache-2.0
// The types of the machines of the gang commit (docs/adr/0038): parties, messages, records, actions, events.
//
// They have the form of the machines of the switch (handover/switch_types.h): a value and one pure function
//     Result<Step<State>> step(const State&, const Event&, Nanos now, const Timing&)
// The driver executes the actions of a step in order. A record is durable before the next action. If it fails cleanly,
// the rest of the step is dropped, and RecordFailed is fed to the state of before.
// Each rank of the gang is one party: a source and a target if it moves, else a bystander. All advance from incarnation n
// (the old epoch) to n+1 (the new one), or go back as n or n+2.
// Threads: value types; a machine belongs to one driver thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/protocol/handover/source_machine.h"
#include "libckpt/protocol/handover/switch_types.h"
#include "libckpt/protocol/handover/target_machine.h"

namespace ckpt::gang {

using migration::HeldLease;
template <class State, class Act>
struct Step {
  State state;
  std::vector<Act> actions;
};
using migration::Timer;
using migration::Timing;
using wire::Bytes;
using wire::Incarnation;
using wire::JobId;
using wire::MigrationId;
using wire::Reason;
using wire::Side;

enum class Role : std::uint8_t { kCoordinator = 1, kSource, kTarget, kBystander };
[[nodiscard]] constexpr bool is_known(Role role) {
  return role >= Role::kCoordinator && role <= Role::kBystander;
}

struct Party {
  Party() = default;
  Party(Role which, std::uint32_t number) : role(which), rank(number) {}
  friend auto operator<=>(const Party&, const Party&) = default;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(role, rank);
  }
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;

  Role role = Role::kCoordinator;
  std::uint32_t rank = 0;  // of the gang; 0 for the coordinator
};
[[nodiscard]] std::string to_text(const Party& party);  // "C", "S1", "T1", "U0"

// The facts of a gang's migration that never change.
struct GangInfo {
  [[nodiscard]] Party lead() const { return {Role::kTarget, moved.front()}; }
  // All but the coordinator.
  [[nodiscard]] std::vector<Party> ranks() const;
  friend bool operator==(const GangInfo&, const GangInfo&) = default;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, gang, base, moved, staying, overlaps, plan, communicators_ms);
  }
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;

  MigrationId migration = 0;
  JobId gang = 0;
  Incarnation base = 0;                // n
  std::vector<std::uint32_t> moved;    // at least one, ascending; the first one's target is the lead
  std::vector<std::uint32_t> staying;  // ascending
  // New communicators are made before the ranks are held. Else they are made while all of them are.
  bool overlaps = true;
  Bytes plan;                          // the control plane's own
  std::uint32_t communicators_ms = 0;  // how long making the communicators may take
};
// It has ids, its ranks stand in order without repetition, and at least one moves.
[[nodiscard]] Result<void> check(const GangInfo& info);

// ---- messages. Statements repeat what the party has recorded, and are never withdrawn. ----
#define CKPT_GANG_BODY(Name)                       \
  static constexpr std::string_view kName = #Name; \
  friend bool operator==(const Name&, const Name&) = default
#define CKPT_GANG_PLAIN(Name) \
  struct Name {               \
    CKPT_GANG_BODY(Name);     \
  }
#define CKPT_GANG_WITH_K(Name)                                 \
  struct Name {                                                \
    Name() = default;                                          \
    explicit Name(Incarnation incarnation) : k(incarnation) {} \
    CKPT_GANG_BODY(Name);                                      \
    Incarnation k = 0;                                         \
  }
#define CKPT_GANG_WITH_REASON(Name)                       \
  struct Name {                                           \
    Name() = default;                                     \
    explicit Name(Reason why) : reason(std::move(why)) {} \
    CKPT_GANG_BODY(Name);                                 \
    Reason reason;                                        \
  }
#define CKPT_GANG_WITH_PAYLOAD(Name)                          \
  struct Name {                                               \
    Name() = default;                                         \
    explicit Name(Bytes bytes) : payload(std::move(bytes)) {} \
    CKPT_GANG_BODY(Name);                                     \
    Bytes payload;                                            \
  }

// By the coordinator. Granted: ranks may be held, and leases for k are given. Returned: n+2 is granted to the sources.
CKPT_GANG_PLAIN(Prepare);
CKPT_GANG_WITH_PAYLOAD(Start);
CKPT_GANG_WITH_K(Granted);
CKPT_GANG_PLAIN(Withdraw);
CKPT_GANG_WITH_K(Returned);
CKPT_GANG_PLAIN(Kept);
CKPT_GANG_WITH_REASON(Aborted);
CKPT_GANG_PLAIN(Restore);
struct Closed {
  Closed() = default;
  Closed(Side which, Incarnation incarnation) : side(which), k(incarnation) {}
  CKPT_GANG_BODY(Closed);
  Side side = Side::kInvalid;
  Incarnation k = 0;  // that side's
};
// By sources, targets and bystanders. PREPARED of a bystander: it may be held; to a source: another one still copies.
CKPT_GANG_WITH_PAYLOAD(Prepared);
CKPT_GANG_WITH_REASON(Failed);  // asks for an abort
CKPT_GANG_PLAIN(Precopied);
CKPT_GANG_PLAIN(Verified);
struct Waiting {  // with BARRIER or HELD_STILL
  Waiting() = default;
  explicit Waiting(bool is_dead) : dead(is_dead) {}
  CKPT_GANG_BODY(Waiting);
  bool dead = false;  // its process is gone
};
CKPT_GANG_WITH_REASON(Never);
CKPT_GANG_WITH_K(Resumed);
CKPT_GANG_PLAIN(Released);
CKPT_GANG_WITH_K(Ready);
CKPT_GANG_WITH_K(Committed);
CKPT_GANG_WITH_K(InGate);
CKPT_GANG_WITH_K(Go);
CKPT_GANG_WITH_K(Ran);
CKPT_GANG_WITH_K(Owns);
struct Relinquished {
  Relinquished() = default;
  Relinquished(bool is_veto, Reason why) : veto(is_veto), reason(std::move(why)) {}
  CKPT_GANG_BODY(Relinquished);
  bool veto = false;  // without READY or COMMITTED: no GO can follow
  Reason reason;
};
// By bystanders; HeldStill and Fenced also by others.
CKPT_GANG_WITH_K(Held);
CKPT_GANG_PLAIN(HeldStill);
CKPT_GANG_PLAIN(Lifted);
CKPT_GANG_WITH_K(Gone);
CKPT_GANG_WITH_K(Old);
CKPT_GANG_WITH_REASON(Dead);
CKPT_GANG_PLAIN(Fenced);
// By anyone: GiveUp asks a target to leave if it still may. Query asks for all statements.
CKPT_GANG_WITH_REASON(GiveUp);
CKPT_GANG_PLAIN(Query);
using wire::Lease;
using wire::LeaseRequest;

using Body = std::variant<Prepare, Start, Granted, Withdraw, Returned, Kept, Aborted, Restore, Closed,
                          Prepared, Failed, Precopied, Verified, Waiting, Never, Resumed, Released, Ready,
                          Committed, InGate, Go, Ran, Owns, Relinquished, Held, HeldStill, Lifted, Gone, Old,
                          Dead, Fenced, GiveUp, Query, LeaseRequest, Lease>;
[[nodiscard]] std::string_view name_of(const Body& body) noexcept;

// ---- records ----
enum class RecordKind : std::uint8_t {
  // coordinator
  kBegun = 1,
  kGranted,   // k = n+1
  kReturned,  // k = n+2
  kKept,
  kClosed,  // side, k
  kAborted,
  kRestored,
  // source
  kBarrier = 20,
  kNever,
  kResumed,  // k
  kReleased,
  // target
  kReady = 30,  // k, owner
  kCommitted,   // k, owner
  kRelinquished,
  // bystander
  kHeld = 40,
  kLifted,
  kGone,
  kOld,  // k
  // source or bystander
  kHeldStill = 50,
  kFenced,
};

[[nodiscard]] bool is_known(RecordKind kind) noexcept;

struct Record {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr bool kOwnForm = true;  // the side may be none
  template <class A>
  void fields(A& a) {
    auto side_number = static_cast<std::uint8_t>(side);
    a(info, party, kind, k, owner, veto, side_number, reason);
    side = static_cast<Side>(side_number);
  }
  Record() = default;
  Record(GangInfo of, Party writer, RecordKind what, Incarnation incarnation = 0)
      : info(std::move(of)), party(writer), kind(what), k(incarnation) {}
  friend bool operator==(const Record&, const Record&) = default;

  GangInfo info;
  Party party;
  RecordKind kind = RecordKind::kBegun;
  Incarnation k = 0;
  bool owner = false;
  bool veto = false;
  Side side = Side::kInvalid;
  Reason reason;
};
// As tests/model/gang_transitions.txt has it: "GRANTED(n+1)".
[[nodiscard]] std::string name_of(const Record& record);

// ---- actions ----
struct Send {
  Send(Party receiver, Body what) : to(receiver), body(std::move(what)) {}
  friend bool operator==(const Send&, const Send&) = default;
  Party to;
  Body body;
};
struct WriteRecord {
  explicit WriteRecord(Record what) : record(std::move(what)) {}
  friend bool operator==(const WriteRecord&, const WriteRecord&) = default;
  Record record;
};
using migration::ArmTimer;
using migration::DisarmTimer;
using migration::FreeSource;
using migration::FreeTarget;
using migration::PrepareSource;
using migration::PrepareStandby;
using migration::ReleaseManifest;
using migration::RunFinalRound;
using migration::StartPrecopy;
using migration::StartReceiving;
using migration::StopCopy;
CKPT_GANG_PLAIN(HoldRank);     // take part in the gathering: RankHeld, once it stands at the common step
CKPT_GANG_WITH_K(ResumeRank);  // let it go on in the old epoch; a repetition does nothing
CKPT_GANG_PLAIN(EndRank);      // for a restore: end the instance that stood here
CKPT_GANG_WITH_K(
    EnterGate);  // the target's instance resumes behind its closed gate: RankInGate, or InstanceDied
CKPT_GANG_PLAIN(PrepareRank);           // one that stays: RankReady, or CommunicatorsFailed
CKPT_GANG_PLAIN(PrepareCommunicators);  // CommunicatorsReady, or CommunicatorsFailed
CKPT_GANG_PLAIN(DiscardCommunicators);  // the new ones
CKPT_GANG_WITH_K(SwapEpoch);            // go on with the new communicators, then abort the old ones
CKPT_GANG_PLAIN(GatherRanks);           // the coordinator holds all ranks at one step
CKPT_GANG_PLAIN(RestoreGang);           // from its image: no instance of it is left
// The target's gate opens for as long as the lease lasts; none: for good. Again with a later deadline: a renewal.
struct OpenGate {
  OpenGate(Incarnation incarnation, std::optional<Nanos> until) : k(incarnation), deadline(until) {}
  friend bool operator==(const OpenGate&, const OpenGate&) = default;
  Incarnation k;
  std::optional<Nanos> deadline;
};
using Action = std::variant<Send, WriteRecord, ArmTimer, DisarmTimer, PrepareSource, StartPrecopy, HoldRank,
                            RunFinalRound, ReleaseManifest, StopCopy, ResumeRank, FreeSource, EndRank,
                            PrepareStandby, StartReceiving, EnterGate, OpenGate, FreeTarget, PrepareRank,
                            PrepareCommunicators, DiscardCommunicators, SwapEpoch, GatherRanks, RestoreGang>;

// ---- events ----
struct Message {
  Message(Party stated_by, Body what) : from(stated_by), body(std::move(what)) {}
  Party from;
  Body body;
};
using migration::EngineFailed;
using migration::FinalDataAcknowledged;
using migration::FinalVerified;
using migration::FirstRoundDone;
using migration::InstanceDied;
using migration::InstanceFinished;
using migration::InstanceRuns;
using migration::InstanceStopped;
using migration::PrecopyConverged;
using migration::PrepareReceived;
using migration::RecordFailed;
using migration::Restarted;
using migration::SourceReady;
using migration::SourceRefused;
using migration::StandbyReady;
using migration::StandbyRefused;
using migration::TimerFired;
struct RankReady {};
struct RankHeld {};  // it stands at the common step, and nothing is in flight
struct RankInGate {
  explicit RankInGate(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct CommunicatorsReady {};
struct CommunicatorsFailed {
  explicit CommunicatorsFailed(Reason why) : reason(std::move(why)) {}
  Reason reason;
};

}  // namespace ckpt::gang
