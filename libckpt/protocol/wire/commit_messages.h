// SPDX-License-Identifier: Apache-2.0
// The messages of both commits: the switch of one rank (docs/design.md §6) and the commit of a gang
// (docs/adr/0038). They share bodies, coding and frame (docs/adr/0055). Each commit takes its own bodies alone.
//
// The switch, between coordinator C, source agent S and target agent T:
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
// Every message may be lost, late, repeated or reordered. Statements repeat what the sender's journal holds and are
// never withdrawn. In a switch any party may relay them (Committed, Ran, Released, Relinquished, Aborted, Resumed,
// Closed). `from` is the party that stated it, not the one that carried it.
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

using MigrationId = std::uint64_t;  // grows with every migration of the cluster, never reused
using JobId = std::uint64_t;        // never reused
using Incarnation = std::uint64_t;  // of a job; grows at each switch

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
  std::uint32_t rank = 0;  // of the gang; 0 for the coordinator, and in a switch
};
[[nodiscard]] std::string to_text(const Party& party);  // "C", "S1", "T1", "U0"

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

// Why a side refused or gave up, for people and for the exit code.
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

// Where one rank is and where it goes.
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

// The times of a rank that stays, sent once it goes on: its standstill, the making of new communicators
// beside the rank, and its way to the barrier once it was told where to stop (0: it was not told).
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
#define CKPT_COMMIT_WITH_REASON(Name)                     \
  struct Name {                                           \
    Name() = default;                                     \
    explicit Name(Reason why) : reason(std::move(why)) {} \
    CKPT_COMMIT_BODY(Name);                               \
    Reason reason;                                        \
  }
#define CKPT_COMMIT_WITH_PAYLOAD(Name)                        \
  struct Name {                                               \
    Name() = default;                                         \
    explicit Name(Bytes bytes) : payload(std::move(bytes)) {} \
    CKPT_COMMIT_BODY(Name);                                   \
    Bytes payload;                                            \
  }

// Both commits.

// C to each party: take part. In a switch it has the places and `plan`, which is the control plane's own encoded message
// (options, keys, command of the standby). A gang's plan is in its description.
struct Prepare {
  CKPT_COMMIT_BODY(Prepare);
  Prepare() = default;
  Prepare(std::vector<RankPlace> rank_places, Bytes migration_plan)
      : ranks(std::move(rank_places)), plan(std::move(migration_plan)) {}
  std::vector<RankPlace> ranks;
  Bytes plan;
};
// To C: everything that can be refused has been checked. `payload` goes to the other side with Start. Of a bystander: it
// may be held. From another source to a source: it still copies.
CKPT_COMMIT_WITH_PAYLOAD(Prepared);
// C to S and T: all are prepared, begin. `payload` is the other side's.
CKPT_COMMIT_WITH_PAYLOAD(Start);
// S to C: the first round has ended (or there is none): the grant may be recorded.
CKPT_COMMIT_PLAIN(Precopied);
// By C. To the source of a switch: the target holds a lease for k, so a pause now is not in vain. In a gang: ranks may be
// held, and leases for k are given.
CKPT_COMMIT_WITH_K(Granted);
// To C: this migration failed here; please end it.
CKPT_COMMIT_WITH_REASON(Failed);
// T to C: volatile; means only that a timeout should not abort any more (SW-7).
CKPT_COMMIT_PLAIN(Verified);
// Holder to C. `sent_at_ns` is the holder's clock (CLOCK_BOOTTIME) when it asked; the answer repeats it
// (SW-9).
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
  explicit Relinquished(Reason why) : reason(std::move(why)) {}
  Relinquished(bool is_veto, Reason why) : veto(is_veto), reason(std::move(why)) {}
  bool veto = false;  // in a gang: without READY or COMMITTED, so no GO can follow
  Reason reason;
};
// Gives this migration up if that is still possible: C to T or S, or anyone to the target of a gang.
CKPT_COMMIT_WITH_REASON(GiveUp);
CKPT_COMMIT_WITH_REASON(Aborted);
// S: it goes on as k. The rest is of a switch: the source owns the job again (owner), or runs k under a lease.
// `never_barrier`: no BARRIER was or will ever be recorded for this migration, so no final manifest exists and the target
// can never have verified.
struct Resumed {
  CKPT_COMMIT_BODY(Resumed);
  Resumed() = default;
  explicit Resumed(Incarnation incarnation) : k(incarnation) {}
  Resumed(Incarnation incarnation, bool is_owner, bool without_barrier, Reason why = {})
      : k(incarnation), owner(is_owner), never_barrier(without_barrier), reason(std::move(why)) {}
  Incarnation k = 0;
  bool owner = false;
  bool never_barrier = false;
  Reason reason;  // of an owner: why the migration ended; empty: not known to the source
};
struct Closed {
  CKPT_COMMIT_BODY(Closed);
  Closed() = default;
  explicit Closed(Side owner) : side(owner) {}
  Closed(Side owner, Incarnation incarnation) : side(owner), k(incarnation) {}
  Side side = Side::kInvalid;
  Incarnation k = 0;  // in a gang: that side's
};
// Any party to any other: state your records. With `give_up` (S to T in a switch, when the source waits no longer, for
// `reason`): relinquish if you have not committed.
struct Query {
  CKPT_COMMIT_BODY(Query);
  Query() = default;
  explicit Query(Reason why) : give_up(true), reason(std::move(why)) {}
  bool give_up = false;
  Reason reason;
};

// The switch alone.

// S or T to C: not possible here; nothing was touched.
CKPT_COMMIT_WITH_REASON(Refused);
// C to T (k = n+1, n+3, ...) or, as the offer of SW-12, to S (k = n+2, ...): GRANTED(k) is recorded; ask for
// its lease.
CKPT_COMMIT_WITH_K(Commit);

// The gang alone.

// By C. Returned: n+2 is granted to the sources.
CKPT_COMMIT_PLAIN(Withdraw);
CKPT_COMMIT_WITH_K(Returned);
CKPT_COMMIT_PLAIN(Kept);
CKPT_COMMIT_PLAIN(Restore);
// By sources, targets and bystanders.
struct Waiting {  // with BARRIER or HELD_STILL
  CKPT_COMMIT_BODY(Waiting);
  Waiting() = default;
  explicit Waiting(bool is_dead) : dead(is_dead) {}
  bool dead = false;  // its process is gone
};
CKPT_COMMIT_WITH_REASON(Never);
CKPT_COMMIT_WITH_K(Ready);
CKPT_COMMIT_WITH_K(InGate);
CKPT_COMMIT_WITH_K(Go);
CKPT_COMMIT_WITH_K(Owns);
// By bystanders; HeldStill and Fenced also by others.
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

// The order is the wire's numbering (index + 1); append only.
using Body = std::variant<Prepare, Prepared, Start, Precopied, Granted, Failed, Verified, LeaseRequest, Lease,
                          Committed, Ran, Released, Relinquished, GiveUp, Aborted, Resumed, Closed, Query,
                          Refused, Commit, Withdraw, Returned, Kept, Restore, Waiting, Never, Ready, InGate,
                          Go, Owns, Held, HeldStill, Lifted, Gone, Old, Dead, Fenced>;
[[nodiscard]] std::string_view name_of(const Body& body) noexcept;

// ---- message ----
// The protocol that a message belongs to. An agent without a record of the migration answers both differently, so the
// message has it.
enum class CommitKind : std::uint8_t { kHandover = 1, kGang = 2 };
[[nodiscard]] constexpr bool is_known(CommitKind kind) {
  return kind == CommitKind::kHandover || kind == CommitKind::kGang;
}
// Whether the protocol has that body.
[[nodiscard]] bool has_body(CommitKind kind, const Body& body) noexcept;

// Messages of a gang go over the coordinator, or from agent to agent. An agent that does not know the move asks for
// `info`: it was restarted before it had recorded anything. Prepare brings it of itself. A coordinator without a record
// asks for it with a Query: `info` follows the answers to that, without its plan, and ends them.
struct CommitMessage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr bool kOwnForm = true;  // one of several bodies
  CommitMessage() = default;
  // Makes a message of a switch, whose parties have no ranks.
  CommitMessage(MigrationId m, JobId j, Incarnation n, Role sender, Role receiver, Body content)
      : kind(CommitKind::kHandover),
        migration(m),
        job(j),
        base(n),
        from(sender, 0),
        to(receiver, 0),
        body(std::move(content)) {}
  // Makes a message of a gang.
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
  JobId job = 0;         // or the gang
  Incarnation base = 0;  // n, the source's incarnation when the migration began
  Party from;
  Party to;
  Body body;
  // The rest is of gangs.
  std::optional<GangInfo> info;
  bool asks_for_info = false;         // by an agent, the body counts for nothing
  std::optional<StayingTimes> times;  // the body counts for nothing
};

// The most bytes of an encoded message from agent to agent: it has no plan and no payload.
inline constexpr std::size_t kMaxBetweenAgentsBytes = std::size_t{64} << 10;

// The body of a FrameType::kCommit frame.
[[nodiscard]] std::vector<std::byte> encode_commit(const CommitMessage& message);
// Also refuses what no correct sender sends: ids of 0, from == to, a body or party of the other protocol, a description of
// another migration, and in a switch a k of the wrong parity for its sender or receiver.
Result<CommitMessage> decode_commit(std::span<const std::byte> bytes);

}  // namespace ckpt::wire
