// SPDX-License-Identifier: Apache-2.0
// The messages of the gang commit as they travel, and its records as they are kept.
//
// Every frame goes over the coordinator, or from agent to agent. An agent that does not know the move asks for `info`: it
// was restarted before it had recorded anything. Prepare brings it of itself. A coordinator without a record asks for it
// with a Query: `info` follows the answers to that, without its plan, and ends them.
// Threads: values. Errors: kProtocol for bytes that no correct sender sends, kCorrupt for records that contradict
// themselves.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "libckpt/protocol/gang/gang_types.h"
#include "libckpt/protocol/handover/basic_journal.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::gang {

// A body with all that any of them has.
struct FlatBody {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  FlatBody() = default;
  explicit FlatBody(const Body& body);
  [[nodiscard]] Result<Body> to_body() const;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, k, flag, side, reason, payload, sent_at_ns, term_ms);
  }

  std::uint8_t kind = 0;  // its place in Body, from 1
  Incarnation k = 0;
  bool flag = false;      // Waiting: dead; Relinquished: veto
  std::uint8_t side = 0;  // Closed
  Reason reason;
  Bytes payload;
  std::int64_t sent_at_ns = 0;
  std::uint32_t term_ms = 0;
};

// The times of a rank that stays, sent once it goes on: its standstill, the making of new communicators
// beside the rank, and its way to the barrier once it was told where to stop (0: from an older agent).
struct StayingTimes {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::int64_t pause_ns = 0;
  std::int64_t groups_ns = 0;
  std::int64_t to_barrier_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(pause_ns, groups_ns, to_barrier_ns);
  }
};

struct GangMessage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr wire::FrameType kFrame = wire::FrameType::kGangSwitch;
  GangMessage() = default;
  GangMessage(MigrationId of, JobId of_gang, Party sender, Party receiver, const Body& what)
      : migration(of), gang(of_gang), from(sender), to(receiver), body(what) {}
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, gang, from, to, body, info, asks_for_info, times);
  }

  MigrationId migration = 0;
  JobId gang = 0;
  Party from;
  Party to;
  FlatBody body;
  std::optional<GangInfo> info;
  bool asks_for_info = false;         // by an agent, the body counts for nothing
  std::optional<StayingTimes> times;  // the body counts for nothing
};
// The body is known, sender and receiver are different, and `info` is of this move.
Result<GangMessage> decode_message(std::span<const std::byte> bytes);

// The most bytes of an encoded message from agent to agent: it has no plan and no payload.
inline constexpr std::size_t kMaxBetweenAgentsBytes = std::size_t{64} << 10;

struct GangRecords {
  using Record = gang::Record;
  using Key = std::pair<MigrationId, Party>;
  static Key key_of(const Record& record) { return {record.info.migration, record.party}; }
  static Bytes& plan_of(Record& record) { return record.info.plan; }
  static const Bytes& plan_of(const Record& record) { return record.info.plan; }
  static std::vector<std::byte> encode(const Record& record) { return wire::encode(record); }
  static Result<Record> decode(std::span<const std::byte> bytes);
};
using GangJournal = migration::BasicJournal<GangRecords>;

}  // namespace ckpt::gang
