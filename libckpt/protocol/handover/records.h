// SPDX-License-Identifier: Apache-2.0
// The records in the journals of a handover's three parties (SW-1). A record is durable before its effect
// begins and before any message states it (SW-2). PREPARING, PRECOPY, FINAL and VERIFIED are never written.
// Threads: value types.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::migration {

using wire::Bytes;
using wire::Incarnation;
using wire::JobId;
using wire::MigrationId;
using wire::RankPlace;
using wire::Reason;
using wire::Role;
using wire::Side;

enum class RecordKind : std::uint8_t {
  kInvalid = 0,
  // Records of the coordinator.
  kBegun = 1,
  kGranted = 2,  // the record has k
  kAborted = 3,
  kClosed = 4,  // the record has side
  // Records of the source.
  kBarrier = 10,
  kResumed = 11,  // the record has k, owner, never_barrier
  kReleased = 12,
  // Records of the target.
  kCommitted = 20,  // the record has k and owner
  kRelinquished = 21,
};
[[nodiscard]] bool is_known(RecordKind kind) noexcept;
[[nodiscard]] std::string_view to_string(RecordKind kind) noexcept;

// The facts of a migration, which never change.
struct HandoverInfo {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  HandoverInfo() = default;
  HandoverInfo(MigrationId m, JobId j, Incarnation n, std::vector<RankPlace> places, Bytes migration_plan)
      : migration(m), job(j), base(n), ranks(std::move(places)), plan(std::move(migration_plan)) {}
  template <class A>
  decltype(auto) fields(A& a);
  friend bool operator==(const HandoverInfo&, const HandoverInfo&) = default;

  MigrationId migration = 0;
  JobId job = 0;
  Incarnation base = 0;  // n, the source's incarnation at the beginning of the migration
  std::vector<RankPlace> ranks;
  Bytes plan;  // opaque data of the control plane, which the machines only carry
};

struct Record {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Record() = default;
  Record(HandoverInfo of, Role writer, RecordKind what, Incarnation incarnation = 0)
      : info(std::move(of)), party(writer), kind(what), k(incarnation) {}
  template <class A>
  decltype(auto) fields(A& a);
  friend bool operator==(const Record&, const Record&) = default;

  HandoverInfo info;
  Role party = Role::kCoordinator;
  RecordKind kind = RecordKind::kInvalid;
  Incarnation k = 0;           // the incarnation in GRANTED, RESUMED, COMMITTED
  bool owner = false;          // in RESUMED, COMMITTED: whether the instance runs without a lease from now on
  bool never_barrier = false;  // in RESUMED: whether this migration never had and never gets a BARRIER
  std::uint8_t side = 0;       // the side in CLOSED, a wire::Side
  Reason reason;               // the reason in ABORTED, RELINQUISHED, RESUMED
};

[[nodiscard]] std::vector<std::byte> encode_record(const Record& record);
Result<Record> decode_record(std::span<const std::byte> bytes);

}  // namespace ckpt::migration
