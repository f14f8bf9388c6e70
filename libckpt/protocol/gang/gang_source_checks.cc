// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

template <class Phase>
const Phase* in(const SourceState& state) {
  return std::get_if<Phase>(&state.phase);
}

void check_phases(const SourceState& before, const SourceState& after) {
  const auto* waited = in<source::Barrier>(before);
  const auto* waits = in<source::Barrier>(after);
  const auto* owned = in<source::Owner>(before);
  const auto* owns = in<source::Owner>(after);
  const bool was_released = in<source::Released>(before) != nullptr;
  CKPT_CHECK(after.phase.index() >= before.phase.index(), "GANG-5: a source returns to no earlier phase");
  CKPT_CHECK(!was_released || in<source::Released>(after), "GANG-7: a released source stays released");
  CKPT_CHECK(was_released || waited || !in<source::Released>(after),
             "GANG-7: only a source with BARRIER is released");
  CKPT_CHECK(!owned || !owns || owns->k == owned->k, "GANG-9: a source resumes once");
  CKPT_CHECK(!owns || owned || waited || owns->k == before.info.base,
             "GANG-5: a source that was not held continues with its old incarnation");
  CKPT_CHECK(!owns || !waited || !waited->dead, "GANG-12: a source whose process has ended does not resume");
  CKPT_CHECK(!waited || !waits || !waited->still || waits->still, "GANG-11: HELD_STILL is not withdrawn");
}

}  // namespace

void check_step(const SourceState& before, const Step<SourceState, Action>& made) {
  check_phases(before, made.state);
  const auto* waited = in<source::Barrier>(before);
  const auto* owned = in<source::Owner>(before);
  const auto* owns = in<source::Owner>(made.state);
  const Record* written = nullptr;
  const auto wrote = [&written](RecordKind kind) { return written != nullptr && written->kind == kind; };
  for (const Action& action : made.actions) {
    const bool released = in<source::Released>(before) || wrote(RecordKind::kReleased);
    const bool fenced = in<source::Fenced>(before) || wrote(RecordKind::kFenced);
    const bool resumed = owned || wrote(RecordKind::kResumed);
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!released && !fenced, "GANG-7: a released or fenced source makes no further decisions");
      written = &write->record;
    } else if (const auto* resume = std::get_if<ResumeRank>(&action)) {
      CKPT_CHECK(owns && owns->k == resume->k, "GANG-5: a source runs only as its owner");
      CKPT_CHECK(!waited || resumed, "GANG-5: RESUMED is written before a source with BARRIER runs");
    } else if (std::holds_alternative<ReleaseManifest>(action)) {
      CKPT_CHECK(wrote(RecordKind::kBarrier), "GANG-1: BARRIER is written before the final manifest is sent");
    } else if (std::holds_alternative<FreeSource>(action)) {
      CKPT_CHECK(released, "GANG-7: RELEASED is written before the source frees memory");
    } else if (std::holds_alternative<EndRank>(action)) {
      CKPT_CHECK(fenced, "GANG-12: FENCED is written before the rank ends");
    } else if (const auto* send = std::get_if<Send>(&action)) {
      if (std::holds_alternative<Released>(send->body))
        CKPT_CHECK(released, "GANG-7: RELEASED is written before it is sent");
      if (std::holds_alternative<Resumed>(send->body))
        CKPT_CHECK(resumed, "GANG-5: RESUMED is written before it is sent");
      if (std::holds_alternative<Never>(send->body))
        CKPT_CHECK((owned && owned->recorded) || wrote(RecordKind::kNever),
                   "GANG-5: NEVER is written before it is sent");
      if (std::holds_alternative<HeldStill>(send->body))
        CKPT_CHECK((waited && waited->still) || wrote(RecordKind::kHeldStill),
                   "GANG-11: HELD_STILL is written before it is sent");
      if (std::holds_alternative<Fenced>(send->body))
        CKPT_CHECK(fenced && in<source::Fenced>(made.state)->ended,
                   "GANG-12: FENCED is written, and the rank has exited, before it is sent");
    }
  }
}

}  // namespace ckpt::gang
