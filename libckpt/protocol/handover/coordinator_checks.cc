// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace coordinator;

// Returns the record that the phase depends on. Returns none if the store was lost.
RecordKind record_of(const CoordinatorState& state) {
  static constexpr RecordKind kRecords[] = {RecordKind::kBegun, RecordKind::kGranted, RecordKind::kAborted,
                                            RecordKind::kClosed, RecordKind::kInvalid};
  return kRecords[state.phase.index()];
}

void check_phases(const CoordinatorState& before, const CoordinatorState& after, Nanos now) {
  const bool had_begun = std::holds_alternative<Begun>(before.phase);
  const auto* closed = std::get_if<Closed>(&before.phase);
  CKPT_CHECK(!is_closed(before) || after.phase.index() == before.phase.index(),
             "SW-1: a migration that has ended stays ended");
  CKPT_CHECK(!closed || std::get<Closed>(after.phase).side == closed->side,
             "SW-15: a migration stays closed for the same side");
  CKPT_CHECK(had_begun || !std::holds_alternative<Begun>(after.phase), "SW-1: BEGUN is the first record");
  CKPT_CHECK(had_begun || is_closed(before) || !std::holds_alternative<Aborted>(after.phase),
             "SW-7: nothing is aborted after it was granted");
  const auto* is = std::get_if<Granted>(&after.phase);
  if (is == nullptr) return;
  if (const auto* was = std::get_if<Granted>(&before.phase))
    CKPT_CHECK(is->k == was->k || (is->k == was->k + 1 && now >= was->lease_until),
               "SW-12: only the next incarnation is granted, and only after the last lease");
  if (had_begun) CKPT_CHECK(is->k == before.info.base + 1, "SW-6: the first grant is n+1");
  if (const auto* lost = std::get_if<Forgotten>(&before.phase))
    CKPT_CHECK(is->k >= std::max(lost->source_k, lost->target_k),
               "SW-12: no grant is for a lower incarnation than a side has run as");
}

}  // namespace

void check_step(const CoordinatorState& before, const Step<CoordinatorState>& made, Nanos now) {
  const CoordinatorState& after = made.state;
  check_phases(before, after, now);
  const auto* was = std::get_if<Granted>(&before.phase);
  const auto* is = std::get_if<Granted>(&after.phase);
  RecordKind kind = record_of(before);
  Incarnation k = was ? was->k : 0;
  for (const Action& action : made.actions) {
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!is_closed(before), "SW-1: nothing is decided once a migration has ended");
      kind = write->record.kind;
      k = write->record.k;
    } else if (const auto* send = std::get_if<Send>(&action)) {
      const bool granted = kind == RecordKind::kGranted;
      if (const auto* commit = std::get_if<wire::Commit>(&send->body))
        CKPT_CHECK(granted && commit->k == k, "SW-6: GRANTED is written before COMMIT is sent");
      if (const auto* told = std::get_if<wire::Granted>(&send->body))
        CKPT_CHECK(granted && told->k == k, "SW-2: GRANTED is written before it is sent");
      if (const auto* lease = std::get_if<wire::Lease>(&send->body)) {
        CKPT_CHECK(granted && lease->k == k, "SW-9: a lease is for what was granted last");
        CKPT_CHECK(is && is->lease_until >= now + static_cast<Nanos>(lease->term_ms) * kNanosPerMs,
                   "SW-9: the coordinator records the end of each lease");
        CKPT_CHECK(!after.abort_wanted || is->committed != 0 || send->to != Role::kTarget,
                   "SW-7: a target gets no lease while it is ordered to give up");
      }
      if (std::holds_alternative<wire::Closed>(send->body))
        CKPT_CHECK(kind == RecordKind::kClosed, "SW-2: CLOSED is written before it is sent");
      if (std::holds_alternative<wire::Aborted>(send->body))
        CKPT_CHECK(kind == RecordKind::kAborted, "SW-2: ABORTED is written before it is sent");
    }
  }
  CKPT_CHECK(record_of(after) == RecordKind::kInvalid || record_of(after) == kind,
             "SW-2: the coordinator enters a phase only with its record");
}

}  // namespace ckpt::migration
