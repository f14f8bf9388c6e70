// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

bool is_known(RecordKind kind) noexcept {
  return name_of(Record(GangInfo(), Party(), kind)) != "invalid";
}

std::string name_of(const Record& record) {
  switch (record.kind) {
    case RecordKind::kBegun:
      return "BEGUN";
    case RecordKind::kGranted:
      return "GRANTED(n+1)";
    case RecordKind::kReturned:
      return "GRANTED(n+2)";
    case RecordKind::kKept:
      return "KEPT(n+1)";
    case RecordKind::kClosed:
      return record.side == Side::kSource ? "CLOSED(source)" : "CLOSED(target)";
    case RecordKind::kAborted:
      return "ABORTED";
    case RecordKind::kRestored:
      return "RESTORED";
    case RecordKind::kBarrier:
      return "BARRIER";
    case RecordKind::kNever:
      return "NEVER";
    case RecordKind::kResumed:
      return "RESUMED";
    case RecordKind::kReleased:
      return "RELEASED";
    case RecordKind::kReady:
      return "READY";
    case RecordKind::kCommitted:
      return "COMMITTED";
    case RecordKind::kRelinquished:
      return "RELINQUISHED";
    case RecordKind::kHeld:
      return "HELD";
    case RecordKind::kLifted:
      return "LIFTED";
    case RecordKind::kGone:
      return "GONE";
    case RecordKind::kOld:
      return "OLD";
    case RecordKind::kHeldStill:
      return "HELD_STILL";
    case RecordKind::kFenced:
      return "FENCED";
  }
  return "invalid";
}

}  // namespace ckpt::gang
