// SPDX-License-Identifier: Apache-2.0
// The messages of both commits: the handover of one rank (docs/design.md §6) and the commit of a gang
// (docs/adr/0038). They share bodies, coding and frame (docs/adr/0055). Each commit takes its own bodies
// alone.
//
// The handover, between coordinator C, source agent S and target agent T:
//   C                          S                              T
//   |-- Prepare -------------->|                              |
//   |-- Prepare ------------------------------------------- ->|      standby starts, memory is made
//   |<-- Prepared -------------|                              |      (or Refused: nothing was touched)
//   |<-- Prepared --------------------------------------------|
//   |-- Start(peer's payload) >|                              |
//   |-- Start(peer's payload) ------------------------------->|
//   |                          |== rounds, mover to mover ===>|
//   |<-- Precopied ------------|                              |      the first round has ended
//   | GRANTED(n+1)             |                              |
//   |-- Commit(n+1) ----------------------------------------->|      waits there for VERIFIED
//   |<-- LeaseRequest(n+1) -----------------------------------|      renewed until CLOSED
//   |-- Lease(n+1) ------------------------------------------>|
//   |-- Granted(n+1) --------->|  converged: pause, last scan |
//   |                          |  BARRIER (fsync)             |
//   |                          |== final manifest ===========>|      roots equal: VERIFIED
//   |                          |                   COMMITTED(n+1), the only fsync on the pause's path
//   |                          |                              | job runs as n+1
//   |<-- Committed(n+1), Ran(n+1) ----------------------------|
//   |                          |<-- Ran(n+1) -----------------|
//   |                   RELEASED, memory freed                |
//   |<-- Released -------------|-- Released ----------------->|      the target is owner, lease no longer
//                                                                    needed
//   | CLOSED(target)           |                              |
//   |-- Closed(target) ------->|                              |
//   |-- Closed(target) -------------------------------------->|
//
// A gang has a source and a target for each rank that moves, and a bystander for each that stays.
//
// Every message may be lost, late, repeated or reordered. Statements repeat what the sender's journal holds
// and are never withdrawn. In a handover any party may relay them (Committed, Ran, Released, Relinquished,
// Aborted, Resumed, Closed). `from` is the party that stated it, not the one that carried it.
//
// Threads: value types. All have constructors: aggregates as temporaries in `co_await f(M{...})` are
// destroyed twice by g++ 12.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

using MigrationId = std::uint64_t;  // a number that increases with every migration of the cluster and is
                                    // never reused
using JobId = std::uint64_t;        // the id of a job or gang, which is never reused
using Incarnation = std::uint64_t;  // a number within a job that increases at each handover

enum class Role : std::uint8_t { kCoordinator = 1, kSource, kTarget, kBystander };
[[nodiscard]] constexpr bool is_known(Role role) {
  return role >= Role::kCoordinator && role <= Role::kBystander;
}
[[nodiscard]] std::string_view to_string(Role role) noexcept;

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
  std::uint32_t rank = 0;  // the rank within the gang; 0 for the coordinator, and in a handover
};
[[nodiscard]] std::string to_text(const Party& party);  // returns a text such as "C", "S1", "T1" or "U0"

enum class Side : std::uint8_t { kInvalid = 0, kSource = 1, kTarget = 2 };
[[nodiscard]] constexpr bool is_known(Side s) {
  return s == Side::kSource || s == Side::kTarget;
}
constexpr auto names_of(record::Of<Side>) {
  return record::names<Side>({{Side::kSource, "source"}, {Side::kTarget, "target"}});
}
[[nodiscard]] constexpr std::string_view to_string(Side side) noexcept {
  return record::name_of(side);
}

// The reason why a side refused or abandoned the migration, for people and for the exit code.
struct Reason {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Reason() = default;
  Reason(ErrorCode error_code, std::string what) : code(error_code), text(std::move(what)) {}
  explicit Reason(const Error& error) : code(error.code()), text(error.to_string()) {}
  [[nodiscard]] Error to_error() const { return {code, text}; }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(code, text);
  }
  friend bool operator==(const Reason&, const Reason&) = default;

  ErrorCode code = ErrorCode::kAborted;
  std::string text;
};

// The current place of one rank, and the place to which it moves.
struct RankPlace {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  RankPlace() = default;
  RankPlace(std::uint32_t rank_number, std::string from_node, std::string from_gpu, std::string to_node,
            std::string to_gpu)
      : rank(rank_number),
        source_node(std::move(from_node)),
        source_gpu(std::move(from_gpu)),
        target_node(std::move(to_node)),
        target_gpu(std::move(to_gpu)) {}
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, source_node, source_gpu, target_node, target_gpu);
  }
  friend bool operator==(const RankPlace&, const RankPlace&) = default;

  std::uint32_t rank = 0;
  std::string source_node;
  std::string source_gpu;
  std::string target_node;
  std::string target_gpu;
};

using Bytes = std::vector<std::byte>;

// The facts of a gang's migration, which never change.
struct GangInfo {
  [[nodiscard]] Party lead() const { return {Role::kTarget, moved.front()}; }
  // Returns all parties except the coordinator.
  [[nodiscard]] std::vector<Party> ranks() const;
  friend bool operator==(const GangInfo&, const GangInfo&) = default;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, gang, base, moved, staying, overlaps, plan, communicators_ms);
  }
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;

  MigrationId migration = 0;
  JobId gang = 0;
  Incarnation base = 0;                // n, the incarnation of the old epoch
  std::vector<std::uint32_t> moved;    // the ranks that move, at least one, in ascending order; the target of
                                       // the first rank is the lead
  std::vector<std::uint32_t> staying;  // the ranks that stay, in ascending order
  // If true, new communicators are made before the ranks are held. If false, they are made while all ranks
  // are held.
  bool overlaps = true;
  Bytes plan;                          // opaque data of the control plane
  std::uint32_t communicators_ms = 0;  // the time limit for making the communicators
};
// Checks that ids are set, that ranks are in order without repetition, and that at least one rank moves.
[[nodiscard]] Result<void> check(const GangInfo& info);

// The times of a rank that stays, sent once the rank continues: its pause, the creation of new communicators
// while it ran, and the time from the order to stop until its barrier (0: it received no such order).
struct StayingTimes {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::int64_t pause_ns = 0;
  std::int64_t groups_ns = 0;
  std::int64_t to_barrier_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(pause_ns, groups_ns, to_barrier_ns);
  }
  friend bool operator==(const StayingTimes&, const StayingTimes&) = default;
};

// ---- bodies ----
#define CKPT_COMMIT_BODY(Name)                     \
  static constexpr std::string_view kName = #Name; \
  friend bool operator==(const Name&, const Name&) = default
#define CKPT_COMMIT_PLAIN(Name) \
  struct Name {                 \
    CKPT_COMMIT_BODY(Name);     \
  }
#define CKPT_COMMIT_WITH_K(Name)                               \
  struct Name {                                                \
    Name() = default;                                          \
    explicit Name(Incarnation incarnation) : k(incarnation) {} \
    CKPT_COMMIT_BODY(Name);                                    \
    Incarnation k = 0;                                         \
  }
#define CKPT_COMMIT_WITH_REASON(Name)                         \
  struct Name {                                               \
    Name() = default;                                         \
    explicit Name(Reason cause) : reason(std::move(cause)) {} \
    CKPT_COMMIT_BODY(Name);                                   \
    Reason reason;                                            \
  }
#define CKPT_COMMIT_WITH_PAYLOAD(Name)                        \
  struct Name {                                               \
    Name() = default;                                         \
    explicit Name(Bytes bytes) : payload(std::move(bytes)) {} \
    CKPT_COMMIT_BODY(Name);                                   \
    Bytes payload;                                            \
  }

// Messages of both protocols.

// Coordinator to each party: the order to take part. In a handover it has the places and `plan`, which is an
// encoded message of the control plane (options, keys, command of the standby). In a gang the plan is in
// GangInfo.
struct Prepare {
  CKPT_COMMIT_BODY(Prepare);
  Prepare() = default;
  Prepare(std::vector<RankPlace> rank_places, Bytes migration_plan)
      : ranks(std::move(rank_places)), plan(std::move(migration_plan)) {}
  std::vector<RankPlace> ranks;
  Bytes plan;
};
// To the coordinator: everything that can be refused has been checked. Start carries `payload` to the other
// side. From a bystander: it may be held. From a source to another source: it still copies.
CKPT_COMMIT_WITH_PAYLOAD(Prepared);
// Coordinator to source and target: all parties are prepared and begin. `payload` is that of the other side.
CKPT_COMMIT_WITH_PAYLOAD(Start);
// Source to coordinator: the first round has ended (or there is none), and the grant may be recorded.
CKPT_COMMIT_PLAIN(Precopied);
// From the coordinator. To the source of a handover: the target has a lease for k, so the source may pause.
// In a gang: ranks may be held, and leases for k are granted.
CKPT_COMMIT_WITH_K(Granted);
// To the coordinator: the migration failed at this party, so the coordinator must end it.
CKPT_COMMIT_WITH_REASON(Failed);
// Target to coordinator: a volatile report, which only means that a timeout should no longer abort (SW-7).
CKPT_COMMIT_PLAIN(Verified);
// Holder to coordinator. `sent_at_ns` is the holder's clock (CLOCK_BOOTTIME) at the request, and the answer
// repeats it (SW-9).
struct LeaseRequest {
  CKPT_COMMIT_BODY(LeaseRequest);
  LeaseRequest() = default;
  LeaseRequest(Incarnation incarnation, std::int64_t sent_at) : k(incarnation), sent_at_ns(sent_at) {}
  Incarnation k = 0;
  std::int64_t sent_at_ns = 0;
};
struct Lease {
  CKPT_COMMIT_BODY(Lease);
  Lease() = default;
  Lease(Incarnation incarnation, std::int64_t sent_at, std::uint32_t term)
      : k(incarnation), sent_at_ns(sent_at), term_ms(term) {}
  Incarnation k = 0;
  std::int64_t sent_at_ns = 0;
  std::uint32_t term_ms = 0;
};
CKPT_COMMIT_WITH_K(Committed);
CKPT_COMMIT_WITH_K(Ran);
CKPT_COMMIT_PLAIN(Released);
struct Relinquished {
  CKPT_COMMIT_BODY(Relinquished);
  Relinquished() = default;
  explicit Relinquished(Reason cause) : reason(std::move(cause)) {}
  Relinquished(bool is_veto, Reason cause) : veto(is_veto), reason(std::move(cause)) {}
  bool veto = false;  // in a gang: whether the target had neither READY nor COMMITTED, so that GO cannot
                      // follow
  Reason reason;
};
// From the coordinator to target or source, or from any party to a gang's target: abandon this migration if
// that is still possible.
CKPT_COMMIT_WITH_REASON(GiveUp);
CKPT_COMMIT_WITH_REASON(Aborted);
// From a source: the job continues as k. The other fields are for a handover: the source owns the job again
// (`owner`), or runs k under a lease. `never_barrier`: no BARRIER was or will ever be recorded for this
// migration, so no final manifest exists and the target cannot have verified.
struct Resumed {
  CKPT_COMMIT_BODY(Resumed);
  Resumed() = default;
  explicit Resumed(Incarnation incarnation) : k(incarnation) {}
  Resumed(Incarnation incarnation, bool is_owner, bool without_barrier, Reason cause = {})
      : k(incarnation), owner(is_owner), never_barrier(without_barrier), reason(std::move(cause)) {}
  Incarnation k = 0;
  bool owner = false;
  bool never_barrier = false;
  Reason reason;  // the reason why the migration ended, from an owner; empty if the source does not know it
};
struct Closed {
  CKPT_COMMIT_BODY(Closed);
  Closed() = default;
  explicit Closed(Side owner) : side(owner) {}
  Closed(Side owner, Incarnation incarnation) : side(owner), k(incarnation) {}
  Side side = Side::kInvalid;
  Incarnation k = 0;  // in a gang: the incarnation of that side
};
// From any party to any other: the request to state its records. With `give_up` (source to target in a
// handover, when the source no longer waits, because of `reason`): the target must relinquish unless it has
// committed.
struct Query {
  CKPT_COMMIT_BODY(Query);
  Query() = default;
  explicit Query(Reason cause) : give_up(true), reason(std::move(cause)) {}
  bool give_up = false;
  Reason reason;
};

// Messages of a handover only.

// Source or target to coordinator: the migration is not possible here; nothing was changed.
CKPT_COMMIT_WITH_REASON(Refused);
// Coordinator to target (k = n+1, n+3, ...) or, as the offer of SW-12, to source (k = n+2, ...): GRANTED(k)
// is recorded, so the side shall request its lease.
CKPT_COMMIT_WITH_K(Commit);

// Messages of a gang only.

// From the coordinator. Withdraw: the party is requested to refuse GO. Returned: n+2 is granted to the
// sources.
CKPT_COMMIT_PLAIN(Withdraw);
CKPT_COMMIT_WITH_K(Returned);
CKPT_COMMIT_PLAIN(Kept);
CKPT_COMMIT_PLAIN(Restore);
// Messages that sources, targets and bystanders send.
struct Waiting {  // a statement that a party waits with BARRIER or HELD_STILL
  CKPT_COMMIT_BODY(Waiting);
  Waiting() = default;
  explicit Waiting(bool is_dead) : dead(is_dead) {}
  bool dead = false;  // whether the party's process has exited
};
CKPT_COMMIT_WITH_REASON(Never);
CKPT_COMMIT_WITH_K(Ready);
CKPT_COMMIT_WITH_K(InGate);
CKPT_COMMIT_WITH_K(Go);
CKPT_COMMIT_WITH_K(Owns);
// Statements of bystanders. Other parties also send HeldStill and Fenced.
CKPT_COMMIT_WITH_K(Held);
CKPT_COMMIT_PLAIN(HeldStill);
CKPT_COMMIT_PLAIN(Lifted);
CKPT_COMMIT_WITH_K(Gone);
CKPT_COMMIT_WITH_K(Old);
CKPT_COMMIT_WITH_REASON(Dead);
CKPT_COMMIT_PLAIN(Fenced);

#undef CKPT_COMMIT_BODY
#undef CKPT_COMMIT_PLAIN
#undef CKPT_COMMIT_WITH_K
#undef CKPT_COMMIT_WITH_REASON
#undef CKPT_COMMIT_WITH_PAYLOAD

// The order determines the numbers on the wire (index + 1), so new bodies are only appended.
using Body = std::variant<Prepare, Prepared, Start, Precopied, Granted, Failed, Verified, LeaseRequest, Lease,
                          Committed, Ran, Released, Relinquished, GiveUp, Aborted, Resumed, Closed, Query,
                          Refused, Commit, Withdraw, Returned, Kept, Restore, Waiting, Never, Ready, InGate,
                          Go, Owns, Held, HeldStill, Lifted, Gone, Old, Dead, Fenced>;
[[nodiscard]] std::string_view name_of(const Body& body) noexcept;

// ---- message ---- The protocol of a message. An agent without a record of the migration answers the two
// protocols differently, so the message names its protocol.
enum class CommitKind : std::uint8_t { kHandover = 1, kGang = 2 };
[[nodiscard]] constexpr bool is_known(CommitKind kind) {
  return kind == CommitKind::kHandover || kind == CommitKind::kGang;
}
// Returns whether the body belongs to the protocol.
[[nodiscard]] bool has_body(CommitKind kind, const Body& body) noexcept;

// A message of a handover or of a gang's commit. Messages of a gang are sent through the coordinator, or from
// agent to agent. An agent that does not know the move requests `info`, because it was restarted before it
// had recorded anything. Prepare always contains `info`. A coordinator without a record requests `info` with
// a Query. The answer has no plan. It is sent after the statements and shows that they are complete.
struct CommitMessage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr bool kOwnForm = true;  // the message has its own encoding, because the body is one of
                                          // several types
  CommitMessage() = default;
  // Creates a message of a handover, whose parties have no ranks.
  CommitMessage(MigrationId m, JobId j, Incarnation n, Role sender, Role receiver, Body content)
      : kind(CommitKind::kHandover),
        migration(m),
        job(j),
        base(n),
        from(sender, 0),
        to(receiver, 0),
        body(std::move(content)) {}
  // Creates a message of a gang.
  CommitMessage(MigrationId m, JobId gang, Incarnation n, Party sender, Party receiver, Body content)
      : kind(CommitKind::kGang),
        migration(m),
        job(gang),
        base(n),
        from(sender),
        to(receiver),
        body(std::move(content)) {}
  CommitMessage(const GangInfo& gang, Party sender, Party receiver, Body content)
      : CommitMessage(gang.migration, gang.gang, gang.base, sender, receiver, std::move(content)) {}
  template <class A>
  void fields(A& a);
  friend bool operator==(const CommitMessage&, const CommitMessage&) = default;

  CommitKind kind = CommitKind::kHandover;
  MigrationId migration = 0;
  JobId job = 0;         // the id of the job, or of the gang
  Incarnation base = 0;  // n, the source's incarnation at the beginning of the migration
  Party from;
  Party to;
  Body body;
  // The following fields are for gangs only.
  std::optional<GangInfo> info;
  bool asks_for_info = false;         // whether an agent requests `info`; the body is then ignored
  std::optional<StayingTimes> times;  // the times of a rank that stays; if set, the body is ignored
};

// The maximum size of an encoded message from agent to agent, which has no plan and no payload.
inline constexpr std::size_t kMaxBetweenAgentsBytes = std::size_t{64} << 10;

// Returns the body of a FrameType::kCommit frame.
[[nodiscard]] std::vector<std::byte> encode_commit(const CommitMessage& message);
// Decodes the body of such a frame. Also refuses messages that no correct sender sends: ids of 0, from == to,
// a body or party of the other protocol, a description of another migration, and in a handover a k of the
// wrong parity for its sender or receiver.
Result<CommitMessage> decode_commit(std::span<const std::byte> bytes);
// Decodes a message that came from another agent. Also refuses messages that only a coordinator exchanges.
Result<CommitMessage> decode_between_agents(std::span<const std::byte> body);

}  // namespace ckpt::wire
