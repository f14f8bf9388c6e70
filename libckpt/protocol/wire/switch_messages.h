// SPDX-License-Identifier: Apache-2.0
// The messages of the switch (docs/design.md §6) between coordinator C, source agent S and target agent T.
//
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
//   |<-- Committed(n+1), Runs(n+1) ---------------------------|
//   |                          |<-- Runs(n+1) ----------------|
//   |                   RELEASED, memory freed                |
//   |<-- Released -------------|-- Released ----------------->|      the target is owner, lease no longer
//                                                                    needed
//   | CLOSED(target)           |                              |
//   |-- Closed(target) ------->|                              |
//   |-- Closed(target) -------------------------------------->|
//
// Every message may be lost, late, repeated or reordered. Statements (Committed, Runs, Released,
// Relinquished, Aborted, Resumed, Closed) repeat what the sender's journal holds and are never withdrawn, so
// any party may relay them. `from` is the party that stated it, not the one that carried it.
//
// Threads: value types. All have constructors: aggregates as temporaries in `co_await f(M{...})` are
// destroyed twice by g++ 12.
#pragma once

#include <cstddef>
#include <cstdint>
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

enum class Party : std::uint8_t { kInvalid = 0, kCoordinator = 1, kSource = 2, kTarget = 3 };
[[nodiscard]] constexpr bool is_known(Party p) {
  return p >= Party::kCoordinator && p <= Party::kTarget;
}
[[nodiscard]] std::string_view to_string(Party party) noexcept;

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

#define CKPT_SWITCH_BODY(Name)                             \
  static constexpr std::uint8_t kVersion = 1, kCompat = 1; \
  static constexpr std::string_view kName = #Name;         \
  template <class A>                                       \
  decltype(auto) fields(A& a);                             \
  friend bool operator==(const Name&, const Name&) = default

// C to S and T: take part. `plan` is the control plane's own encoded message (options, keys, command of the
// standby).
struct Prepare {
  CKPT_SWITCH_BODY(Prepare);
  Prepare() = default;
  Prepare(std::vector<RankPlace> rank_places, Bytes migration_plan)
      : ranks(std::move(rank_places)), plan(std::move(migration_plan)) {}
  std::vector<RankPlace> ranks;
  Bytes plan;
};
// S or T to C: everything that can be refused has been checked. `payload` goes to the other side with
// Start.
struct Prepared {
  CKPT_SWITCH_BODY(Prepared);
  Prepared() = default;
  explicit Prepared(Bytes bytes) : payload(std::move(bytes)) {}
  Bytes payload;
};
// S or T to C: not possible here; nothing was touched.
struct Refused {
  CKPT_SWITCH_BODY(Refused);
  Refused() = default;
  explicit Refused(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
// C to S and T: both are prepared, begin.
struct Start {
  CKPT_SWITCH_BODY(Start);
  Start() = default;
  explicit Start(Bytes bytes) : peer_payload(std::move(bytes)) {}
  Bytes peer_payload;
};
// S to C: the first round has ended (or there is none): the grant may be recorded.
struct Precopied {
  CKPT_SWITCH_BODY(Precopied);
};
// C to S: the target holds a lease for k, so a pause now is not in vain.
struct Granted {
  CKPT_SWITCH_BODY(Granted);
  Granted() = default;
  explicit Granted(Incarnation incarnation) : k(incarnation) {}
  Incarnation k = 0;
};
// S to C: this migration failed at the source; please end it.
struct Failed {
  CKPT_SWITCH_BODY(Failed);
  Failed() = default;
  explicit Failed(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
// T to C: volatile; means only that a timeout should not abort any more (SW-7).
struct Verified {
  CKPT_SWITCH_BODY(Verified);
};
// C to T (k = n+1, n+3, ...) or, as the offer of SW-12, to S (k = n+2, ...): GRANTED(k) is recorded; ask for
// its lease.
struct Commit {
  CKPT_SWITCH_BODY(Commit);
  Commit() = default;
  explicit Commit(Incarnation incarnation) : k(incarnation) {}
  Incarnation k = 0;
};
// Holder to C. `sent_at_ns` is the holder's clock (CLOCK_BOOTTIME) when it asked; the answer repeats it
// (SW-9).
struct LeaseRequest {
  CKPT_SWITCH_BODY(LeaseRequest);
  LeaseRequest() = default;
  LeaseRequest(Incarnation incarnation, std::int64_t sent_at) : k(incarnation), sent_at_ns(sent_at) {}
  Incarnation k = 0;
  std::int64_t sent_at_ns = 0;
};
struct Lease {
  CKPT_SWITCH_BODY(Lease);
  Lease() = default;
  Lease(Incarnation incarnation, std::int64_t sent_at, std::uint32_t term)
      : k(incarnation), sent_at_ns(sent_at), term_ms(term) {}
  Incarnation k = 0;
  std::int64_t sent_at_ns = 0;
  std::uint32_t term_ms = 0;
};
struct Committed {
  CKPT_SWITCH_BODY(Committed);
  Committed() = default;
  explicit Committed(Incarnation incarnation) : k(incarnation) {}
  Incarnation k = 0;
};
struct Runs {
  CKPT_SWITCH_BODY(Runs);
  Runs() = default;
  explicit Runs(Incarnation incarnation) : k(incarnation) {}
  Incarnation k = 0;
};
struct Released {
  CKPT_SWITCH_BODY(Released);
};
struct Relinquished {
  CKPT_SWITCH_BODY(Relinquished);
  Relinquished() = default;
  explicit Relinquished(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
// C to T or S: please give this migration up if you still can.
struct AbortRequest {
  CKPT_SWITCH_BODY(AbortRequest);
  AbortRequest() = default;
  explicit AbortRequest(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
struct Aborted {
  CKPT_SWITCH_BODY(Aborted);
  Aborted() = default;
  explicit Aborted(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
// S: the source owns the job again (owner), or runs k under a lease. `never_barrier`: no BARRIER was or will
// ever be recorded for this migration, so no final manifest exists and the target can never have verified.
struct Resumed {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;  // 2: the reason; an older source sends none
  static constexpr std::string_view kName = "Resumed";
  template <class A>
  decltype(auto) fields(A& a);
  friend bool operator==(const Resumed&, const Resumed&) = default;
  Resumed() = default;
  Resumed(Incarnation incarnation, bool is_owner, bool without_barrier, Reason why = {})
      : k(incarnation), owner(is_owner), never_barrier(without_barrier), reason(std::move(why)) {}
  Incarnation k = 0;
  bool owner = false;
  bool never_barrier = false;
  Reason reason;  // of an owner: why the migration ended; empty: not known to the source
};
struct Closed {
  CKPT_SWITCH_BODY(Closed);
  Closed() = default;
  explicit Closed(Side owner) : side(owner) {}
  Side side = Side::kInvalid;
};
// Any party to any other: state your record. With `give_up` (S to T, when the source waits no longer, for
// `reason`): relinquish if you have not committed.
struct Query {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;  // 2: the reason; an older source sends none
  static constexpr std::string_view kName = "Query";
  template <class A>
  decltype(auto) fields(A& a);
  friend bool operator==(const Query&, const Query&) = default;
  Query() = default;
  explicit Query(Reason why) : give_up(true), reason(std::move(why)) {}
  bool give_up = false;
  Reason reason;
};
#undef CKPT_SWITCH_BODY

// The order is the wire's numbering (index + 1); append only.
using SwitchBody = std::variant<Prepare, Prepared, Refused, Start, Precopied, Granted, Failed, Verified,
                                Commit, LeaseRequest, Lease, Committed, Runs, Released, Relinquished,
                                AbortRequest, Aborted, Resumed, Closed, Query>;
[[nodiscard]] std::string_view name_of(const SwitchBody& body) noexcept;

struct SwitchMessage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr bool kOwnForm = true;  // one of several bodies
  SwitchMessage() = default;
  SwitchMessage(MigrationId m, JobId j, Incarnation base_incarnation, Party sender, Party receiver,
                SwitchBody content)
      : migration(m), job(j), base(base_incarnation), from(sender), to(receiver), body(std::move(content)) {}
  template <class A>
  void fields(A& a);
  friend bool operator==(const SwitchMessage&, const SwitchMessage&) = default;

  MigrationId migration = 0;
  JobId job = 0;
  Incarnation base = 0;  // n, the source's incarnation when the migration began
  Party from = Party::kInvalid;
  Party to = Party::kInvalid;
  SwitchBody body;
};

// The most bytes of an encoded message from agent to agent: it has no plan and no payload.
inline constexpr std::size_t kMaxBetweenAgentsBytes = std::size_t{64} << 10;

// The body of a FrameType::kSwitch frame.
[[nodiscard]] std::vector<std::byte> encode_switch(const SwitchMessage& message);
// Also refuses what no correct sender sends: ids of 0, from == to, a k of the wrong parity for its sender or
// receiver.
Result<SwitchMessage> decode_switch(std::span<const std::byte> body);

}  // namespace ckpt::wire
