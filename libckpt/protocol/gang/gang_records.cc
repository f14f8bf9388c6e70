// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_records.h"

namespace ckpt::gang {
namespace {

bool fits(Role role, RecordKind kind) {
  const auto number = static_cast<unsigned>(kind);
  const bool is_shared = kind == RecordKind::kHeldStill || kind == RecordKind::kFenced;
  switch (role) {
    case Role::kCoordinator:
      return number < 20;
    case Role::kSource:
      return (number >= 20 && number < 30) || is_shared;
    case Role::kTarget:
      return number >= 30 && number < 40;
    case Role::kBystander:
      return (number >= 40 && number < 50) || is_shared;
  }
  return false;
}

}  // namespace

Result<Record> GangRecords::decode(std::span<const std::byte> bytes) {
  CKPT_TRY(record, wire::decode<Record>(bytes));
  const auto side = static_cast<unsigned>(record.side);
  const bool is_closed = record.kind == RecordKind::kClosed;
  if (!check(record.info) || !fits(record.party.role, record.kind) || side > 2 || is_closed != (side != 0))
    return Error(ErrorCode::kCorrupt,
                 "Record " + name_of(record) + " of " + to_text(record.party) + " contradicts itself");
  return std::move(record);
}

}  // namespace ckpt::gang
