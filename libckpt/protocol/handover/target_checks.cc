// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace target;

void check_phases(const TargetState& before, const TargetState& after, Nanos now) {
  const auto* was = std::get_if<Committed>(&before.phase);
  const auto* is = std::get_if<Committed>(&after.phase);
  CKPT_CHECK(after.phase.index() >= before.phase.index(),
             "SW-5: a target that has given up does not commit, and none returns to an earlier phase");
  CKPT_CHECK(!was || !was->owner || (is && is->owner && is->k == was->k),
             "SW-8: a target that owns the job keeps it, and its incarnation");
  if (is == nullptr) return;
  CKPT_CHECK(was || std::holds_alternative<Verified>(before.phase) ||
                 std::holds_alternative<Receiving>(before.phase),
             "SW-6: a target commits what it has verified");
  CKPT_CHECK(was || !before.leaving, "SW-5: a target that is giving up does not commit");
  CKPT_CHECK(!was || is->k >= was->k, "SW-12: the incarnation of a target never falls");
  const bool is_new = !was || is->k != was->k;
  const bool has_lease = after.offered == is->k && after.lease.k == is->k && after.lease.deadline > now;
  CKPT_CHECK(!is_new || is->owner || has_lease,
             "SW-6: a target commits only what it was granted, with a valid lease for it");
}

}  // namespace

void check_step(const TargetState& before, const Step<TargetState>& made, Nanos now) {
  check_phases(before, made.state, now);
  const auto* was = std::get_if<Committed>(&before.phase);
  const auto* is = std::get_if<Committed>(&made.state.phase);
  const bool had_given_up = std::holds_alternative<Relinquished>(before.phase);
  std::optional<Incarnation> k;  // the incarnation of COMMITTED; set once the record is written
  if (was) k = was->k;
  bool given_up = had_given_up;
  for (const Action& action : made.actions) {
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!had_given_up, "SW-5: a target that has given up makes no further decisions");
      k = write->record.kind == RecordKind::kCommitted ? std::optional(write->record.k) : std::nullopt;
      given_up = write->record.kind == RecordKind::kRelinquished;
    } else if (const auto* run = std::get_if<RunInstance>(&action)) {
      CKPT_CHECK(run->k == k, "SW-2: a target runs only as the incarnation that it has recorded");
      CKPT_CHECK(run->deadline ? *run->deadline > now : is && is->owner,
                 "SW-8: a target without a valid lease runs only as the owner");
    } else if (std::holds_alternative<FreeTarget>(action)) {
      CKPT_CHECK(given_up, "SW-13: RELINQUISHED is written before the target frees memory");
    } else if (const auto* send = std::get_if<Send>(&action)) {
      if (const auto* committed = std::get_if<wire::Committed>(&send->body))
        CKPT_CHECK(committed->k == k, "SW-2: COMMITTED is written before it is sent");
      if (const auto* runs = std::get_if<wire::Ran>(&send->body))
        CKPT_CHECK(runs->k == k, "SW-13: a target reports the incarnation that it has committed");
      if (std::holds_alternative<wire::Relinquished>(send->body))
        CKPT_CHECK(given_up, "SW-2: RELINQUISHED is written before it is sent");
    }
  }
}

}  // namespace ckpt::migration
