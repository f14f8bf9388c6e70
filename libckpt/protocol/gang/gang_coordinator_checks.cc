// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

// Returns the record that the phase depends on. Asking depends on no record and continues like BEGUN.
RecordKind record_of(const CoordinatorState& state) {
  using Kind = RecordKind;
  static constexpr Kind kRecords[] = {Kind::kBegun,  Kind::kGranted, Kind::kKept,     Kind::kReturned,
                                      Kind::kClosed, Kind::kAborted, Kind::kRestored, Kind::kBegun};
  return kRecords[state.phase.index()];
}

// Returns whether `next` may follow a record of kind `before`: checks the order of gang_transitions.txt and
// the incarnation of the record.
bool may_follow(RecordKind before, const Record& next) {
  const Incarnation n = next.info.base;
  const bool granted = before == RecordKind::kGranted;
  const bool returned = before == RecordKind::kReturned;
  switch (next.kind) {
    case RecordKind::kBegun:
    case RecordKind::kAborted:
      return before == RecordKind::kBegun;
    case RecordKind::kGranted:
      return before == RecordKind::kBegun && next.k == n + 1;
    case RecordKind::kKept:
      return granted;
    case RecordKind::kReturned:
      return granted && next.k == n + 2;
    case RecordKind::kClosed:
      if (next.side == Side::kTarget) return (granted || before == RecordKind::kKept) && next.k == n + 1;
      return (granted && next.k == n) || (returned && next.k == n + 2);
    case RecordKind::kRestored:
      return before != RecordKind::kBegun && before != RecordKind::kRestored;
    default:
      return false;
  }
}

// Returns the record that this statement of the coordinator repeats. Returns nullopt if the statement needs
// no record.
std::optional<RecordKind> record_before(const Body& said) {
  if (std::holds_alternative<Granted>(said) || std::holds_alternative<Withdraw>(said))
    return RecordKind::kGranted;
  if (std::holds_alternative<Kept>(said)) return RecordKind::kKept;
  if (std::holds_alternative<Returned>(said)) return RecordKind::kReturned;
  if (std::holds_alternative<Closed>(said)) return RecordKind::kClosed;
  if (std::holds_alternative<Aborted>(said)) return RecordKind::kAborted;
  if (std::holds_alternative<Restore>(said)) return RecordKind::kRestored;
  return std::nullopt;
}

}  // namespace

void check_step(const CoordinatorState& before, const Step<CoordinatorState, Action>& made, Nanos now,
                bool is_fenced) {
  const CoordinatorState& after = made.state;
  RecordKind kind = record_of(before);
  for (const Action& action : made.actions) {
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(may_follow(kind, write->record),
                 "GANG-9: a record follows only as the table of transitions allows");
      kind = write->record.kind;
    } else if (const auto* send = std::get_if<Send>(&action)) {
      CKPT_CHECK(record_before(send->body).value_or(kind) == kind,
                 "GANG-8: a decision is written before the ranks are notified");
      if (const auto* lease = std::get_if<Lease>(&send->body))
        CKPT_CHECK((kind == RecordKind::kGranted || kind == RecordKind::kKept) &&
                       lease->k == before.info.base + 1 &&
                       after.facts.at(send->to).lease_until >=
                           now + static_cast<Nanos>(lease->term_ms) * kNanosPerMs,
                   "GANG-8: only n+1 gets a lease, and the coordinator records its end");
    } else if (std::holds_alternative<RestoreGang>(action)) {
      CKPT_CHECK(kind == RecordKind::kRestored && is_fenced,
                 "GANG-12: the image runs only after every instance is fenced");
    }
  }
  CKPT_CHECK(record_of(after) == kind, "GANG-8: the coordinator enters a phase only with its record");
  CKPT_CHECK(after.settled || !before.settled, "GANG-12: a settled move stays settled");
}

}  // namespace ckpt::gang
