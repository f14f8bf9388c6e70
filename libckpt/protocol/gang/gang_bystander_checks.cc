// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

template <class Phase>
const Phase* in(const BystanderState& state) {
  return std::get_if<Phase>(&state.phase);
}

void check_phases(const BystanderState& before, const BystanderState& after) {
  const auto* was_old = in<bystander::Old>(before);
  const auto* is_old = in<bystander::Old>(after);
  const bool was_gone = in<bystander::Gone>(before) != nullptr;
  CKPT_CHECK(after.phase.index() >= before.phase.index(),
             "GANG-8: a bystander that continues in the old epoch does not swap, and none returns to an "
             "earlier phase");
  CKPT_CHECK(!was_gone || !is_old, "GANG-7: a bystander that has swapped does not return to the old epoch");
  CKPT_CHECK(!was_old || !is_old || is_old->k == was_old->k,
             "GANG-9: a bystander returns to the old epoch once");
  CKPT_CHECK(
      was_gone || !in<bystander::Gone>(after) || in<bystander::Held>(before) || in<bystander::Lifted>(before),
      "GANG-10: a bystander swaps once it is held, and not while it refuses GO");
  CKPT_CHECK(!in<bystander::Lifted>(after) || in<bystander::Still>(before) || in<bystander::Lifted>(before),
             "GANG-10: only HELD_STILL is lifted");
}

}  // namespace

void check_step(const BystanderState& before, const Step<BystanderState, Action>& made) {
  check_phases(before, made.state);
  const auto* old = in<bystander::Old>(made.state);
  const bool waited =
      in<bystander::Held>(before) || in<bystander::Still>(before) || in<bystander::Lifted>(before);
  const Record* written = nullptr;
  const auto wrote = [&written](RecordKind kind) { return written != nullptr && written->kind == kind; };
  for (const Action& action : made.actions) {
    const bool gone = in<bystander::Gone>(before) || wrote(RecordKind::kGone);
    const bool fenced = in<bystander::Fenced>(before) || wrote(RecordKind::kFenced);
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!fenced, "GANG-12: a fenced bystander makes no further decisions");
      written = &write->record;
    } else if (const auto* swap = std::get_if<SwapEpoch>(&action)) {
      CKPT_CHECK(gone && swap->k == before.info.base + 1, "GANG-6: GONE is written before the swap");
    } else if (const auto* resume = std::get_if<ResumeRank>(&action)) {
      CKPT_CHECK(old && old->k == resume->k,
                 "GANG-5: a bystander that returns to the old epoch runs as it has recorded");
      CKPT_CHECK(!waited || wrote(RecordKind::kOld), "GANG-3: OLD is written before one that was HELD runs");
    } else if (std::holds_alternative<EndRank>(action)) {
      CKPT_CHECK(fenced, "GANG-12: FENCED is written before the rank ends");
    } else if (const auto* send = std::get_if<Send>(&action)) {
      if (std::holds_alternative<Gone>(send->body))
        CKPT_CHECK(gone, "GANG-6: GONE is written before it is sent");
      if (std::holds_alternative<Held>(send->body))
        CKPT_CHECK(in<bystander::Held>(before) || wrote(RecordKind::kHeld),
                   "GANG-3: HELD is written before it is sent");
      if (std::holds_alternative<HeldStill>(send->body))
        CKPT_CHECK(in<bystander::Still>(before) || wrote(RecordKind::kHeldStill),
                   "GANG-8: HELD_STILL is written before it is sent");
      if (std::holds_alternative<Lifted>(send->body))
        CKPT_CHECK(in<bystander::Lifted>(before) || wrote(RecordKind::kLifted),
                   "GANG-10: LIFTED is written before it is sent");
      if (std::holds_alternative<Fenced>(send->body))
        CKPT_CHECK(fenced && in<bystander::Fenced>(made.state)->ended,
                   "GANG-12: FENCED is written, and the rank has exited, before it is sent");
    }
  }
}

}  // namespace ckpt::gang
