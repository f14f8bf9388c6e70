// SPDX-License-Identifier: Apache-2.0
// The types of the machines of the gang commit (docs/adr/0038): records, actions, events. Parties and
// messages are wire's.
//
// They have the form of the machines of the handover (handover/handover_types.h): a value and one pure
// function
//     Result<Step<State>> step(const State&, const Event&, Nanos now, const Timing&)
// The driver executes the actions of a step in order. A record is durable before the next action. If it fails
// cleanly, the rest of the step is dropped, and RecordFailed is delivered to the state before the step. Each
// rank of the gang is one party: a source and a target if it moves, else a bystander. All advance from
// incarnation n (the old epoch) to n+1 (the new one), or go back as n or n+2.
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

#include "libckpt/protocol/handover/handover_types.h"
#include "libckpt/protocol/handover/source_machine.h"
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

using wire::check;
using wire::GangInfo;
using wire::name_of;
using wire::Party;
using wire::Role;
using wire::to_text;

// ---- messages ----
using wire::Aborted;
using wire::Body;
using wire::Closed;
using wire::Committed;
using wire::Dead;
using wire::Failed;
using wire::Fenced;
using wire::GiveUp;
using wire::Go;
using wire::Gone;
using wire::Granted;
using wire::Held;
using wire::HeldStill;
using wire::InGate;
using wire::Kept;
using wire::Lease;
using wire::LeaseRequest;
using wire::Lifted;
using wire::Never;
using wire::Old;
using wire::Owns;
using wire::Precopied;
using wire::Prepare;
using wire::Prepared;
using wire::Query;
using wire::Ran;
using wire::Ready;
using wire::Released;
using wire::Relinquished;
using wire::Restore;
using wire::Resumed;
using wire::Returned;
using wire::Start;
using wire::Verified;
using wire::Waiting;
using wire::Withdraw;

// ---- records ----
enum class RecordKind : std::uint8_t {
  // Records of the coordinator.
  kBegun = 1,
  kGranted,   // the record has k = n+1
  kReturned,  // the record has k = n+2
  kKept,
  kClosed,  // the record has side and k
  kAborted,
  kRestored,
  // Records of a source.
  kBarrier = 20,
  kNever,
  kResumed,  // the record has k
  kReleased,
  // Records of a target.
  kReady = 30,  // the record has k and owner
  kCommitted,   // the record has k and owner
  kRelinquished,
  // Records of a bystander.
  kHeld = 40,
  kLifted,
  kGone,
  kOld,  // the record has k
  // Records of a source or a bystander.
  kHeldStill = 50,
  kFenced,
};

[[nodiscard]] bool is_known(RecordKind kind) noexcept;

struct Record {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr bool kOwnForm = true;  // the record has its own encoding, because the side may be unset
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
// Returns the name in the notation of tests/model/gang_transitions.txt, such as "GRANTED(n+1)".
[[nodiscard]] std::string name_of(const Record& record);

// ---- actions ----
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
CKPT_GANG_PLAIN(HoldRank);     // takes part in gathering; RankHeld follows once the rank waits at the common
                               // step
CKPT_GANG_WITH_K(ResumeRank);  // lets the rank continue in the old epoch; a repetition has no effect
CKPT_GANG_PLAIN(EndRank);      // terminates the old instance on this node, before a restore
CKPT_GANG_WITH_K(
    EnterGate);  // resumes the target's instance behind its closed gate; RankInGate or InstanceDied follows
CKPT_GANG_PLAIN(PrepareRank);  // prepares a rank that stays; RankReady or CommunicatorsFailed follows
CKPT_GANG_PLAIN(PrepareCommunicators);  // makes the communicators; CommunicatorsReady or CommunicatorsFailed
                                        // follows
CKPT_GANG_PLAIN(DiscardCommunicators);  // discards the new communicators
CKPT_GANG_WITH_K(SwapEpoch);            // continues with the new communicators, then aborts the old ones
CKPT_GANG_PLAIN(GatherRanks);           // requests that the coordinator hold all ranks at one step
CKPT_GANG_PLAIN(RestoreGang);           // restores the gang from its image; no instance of the gang remains
// Opens the target's gate for the duration of the lease. Without a deadline, the gate opens permanently. A
// repetition with a later deadline renews the lease.
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
struct RankHeld {};  // the rank waits at the common step with nothing in flight
struct RankInGate {
  explicit RankInGate(Incarnation incarnation) : k(incarnation) {}
  Incarnation k;
};
struct RankEnded {};  // the instance is proven to have ended, as EndRank or FreeTarget ordered
struct CommunicatorsReady {};
struct CommunicatorsFailed {
  explicit CommunicatorsFailed(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};

}  // namespace ckpt::gang
