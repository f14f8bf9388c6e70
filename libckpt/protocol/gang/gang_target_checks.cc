// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

bool leads(const TargetState& state) {
  return state.info.lead().rank == state.rank;
}

void check_phases(const TargetState& before, const TargetState& after, Nanos now) {
  const auto* was = std::get_if<target::Promised>(&before.phase);
  const auto* is = std::get_if<target::Promised>(&after.phase);
  const auto* had_left = std::get_if<target::Relinquished>(&before.phase);
  const auto* left = std::get_if<target::Relinquished>(&after.phase);
  CKPT_CHECK(after.phase.index() >= before.phase.index(),
             "GANG-5: a target that has given up does not promise, and none returns to an earlier phase");
  CKPT_CHECK(!left || left->veto == (had_left ? had_left->veto : !was),
             "GANG-5: a target vetoes if it has not promised, and only then");
  if (is == nullptr) return;
  CKPT_CHECK(!was || ((!was->owner || is->owner) && (!was->in_gate || is->in_gate)),
             "GANG-6: a target withdraws neither its gate nor its ownership");
  CKPT_CHECK(!was || !was->finished || is->finished,
             "GANG-6: an instance that has finished remains finished");
  if (was) return;
  CKPT_CHECK(!before.leaving, "GANG-5: a target that is giving up does not promise");
  CKPT_CHECK(after.info.overlaps || after.has_communicators,
             "GANG-4: a target promises once its communicators are ready");
  const bool all =
      after.ready.size() + 1 == after.info.moved.size() && after.held.size() == after.info.staying.size();
  const bool has_lease = after.lease.k == after.info.base + 1 && after.lease.deadline > now;
  CKPT_CHECK(!leads(after) || (all && has_lease),
             "GANG-4: the lead commits with every READY and HELD, and a lease that lasts");
}

}  // namespace

void check_step(const TargetState& before, const Step<TargetState, Action>& made, Nanos now) {
  const TargetState& after = made.state;
  check_phases(before, after, now);
  const auto* was = std::get_if<target::Promised>(&before.phase);
  const auto* is = std::get_if<target::Promised>(&after.phase);
  const bool had_left = std::holds_alternative<target::Relinquished>(before.phase);
  const Incarnation k = before.info.base + 1;
  bool promised = was != nullptr;
  bool owns = was && was->owner;
  bool left = had_left;
  for (const Action& action : made.actions) {
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!had_left, "GANG-5: a target that has given up makes no further decisions");
      left = write->record.kind == RecordKind::kRelinquished;
      promised = !left;
      owns = promised && write->record.owner;
    } else if (const auto* enter = std::get_if<EnterGate>(&action)) {
      CKPT_CHECK(promised && enter->k == k, "GANG-6: a target enters its gate once it has promised");
    } else if (const auto* open = std::get_if<OpenGate>(&action)) {
      CKPT_CHECK(promised && open->k == k && is && is->in_gate && after.go,
                 "GANG-6: a target passes its gate on GO");
      CKPT_CHECK(is && !is->finished, "GANG-6: an instance that has finished is not run again");
      CKPT_CHECK(open->deadline ? *open->deadline > now : owns,
                 "GANG-6: a target without a valid lease passes its gate only as the owner");
    } else if (std::holds_alternative<FreeTarget>(action)) {
      CKPT_CHECK(left, "GANG-5: RELINQUISHED is written before the target frees memory");
    } else if (const auto* send = std::get_if<Send>(&action)) {
      if (std::holds_alternative<Ready>(send->body) || std::holds_alternative<Committed>(send->body))
        CKPT_CHECK(promised, "GANG-4: READY or COMMITTED is written before it is sent");
      if (std::holds_alternative<Go>(send->body))
        CKPT_CHECK(promised && leads(after), "GANG-6: GO is sent by the lead, once it has committed");
      if (std::holds_alternative<Owns>(send->body))
        CKPT_CHECK(owns, "GANG-6: a target is recorded as owner before it reports that");
      if (std::holds_alternative<Relinquished>(send->body))
        CKPT_CHECK(left && std::get<target::Relinquished>(after.phase).ended,
                   "GANG-12: RELINQUISHED is written, and the instance cannot run, before it is sent");
    }
  }
}

}  // namespace ckpt::gang
