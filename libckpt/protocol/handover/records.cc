// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/records.h"

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::migration {
namespace {

bool fits(Role party, RecordKind kind) {
  const auto number = static_cast<unsigned>(kind);
  switch (party) {
    case Role::kCoordinator:
      return number < 10;
    case Role::kSource:
      return number >= 10 && number < 20;
    case Role::kTarget:
      return number >= 20;
    case Role::kBystander:
      break;
  }
  return false;
}

}  // namespace

bool is_known(RecordKind kind) noexcept {
  return to_string(kind) != "invalid";
}

std::string_view to_string(RecordKind kind) noexcept {
  switch (kind) {
    case RecordKind::kInvalid:
      break;
    case RecordKind::kBegun:
      return "BEGUN";
    case RecordKind::kGranted:
      return "GRANTED";
    case RecordKind::kAborted:
      return "ABORTED";
    case RecordKind::kClosed:
      return "CLOSED";
    case RecordKind::kBarrier:
      return "BARRIER";
    case RecordKind::kResumed:
      return "RESUMED";
    case RecordKind::kReleased:
      return "RELEASED";
    case RecordKind::kCommitted:
      return "COMMITTED";
    case RecordKind::kRelinquished:
      return "RELINQUISHED";
  }
  return "invalid";
}

template <class A>
decltype(auto) HandoverInfo::fields(A& a) {
  return a(migration, job, base, ranks, plan);
}

template <class A>
decltype(auto) Record::fields(A& a) {
  return a(info, party, kind, k, owner, never_barrier, side, reason);
}

std::vector<std::byte> encode_record(const Record& record) {
  return wire::encode(record);
}

Result<Record> decode_record(std::span<const std::byte> bytes) {
  CKPT_TRY(record, wire::decode<Record>(bytes));
  const bool closed = record.kind == RecordKind::kClosed;
  if (!fits(record.party, record.kind) || record.info.migration == 0 || record.info.job == 0 ||
      closed != (record.side == 1 || record.side == 2) || record.side > 2)
    return Error(ErrorCode::kCorrupt, "Journal record " + std::string(to_string(record.kind)) + " of the " +
                                          std::string(to_string(record.party)) + " contradicts itself");
  return std::move(record);
}

}  // namespace ckpt::migration
