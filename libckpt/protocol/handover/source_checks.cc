// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace source;

template <class Phase>
const Phase* in(const SourceState& state) {
  return std::get_if<Phase>(&state.phase);
}

// Returns the incarnation that the source may run as according to its record. Returns nullopt if the source
// waits at its barrier or has been released.
std::optional<Incarnation> may_run_as(const SourceState& state) {
  if (const auto* leased = in<Leased>(state)) return leased->k;
  if (const auto* owner = in<Owner>(state)) return owner->k;
  return in<Barrier>(state) || in<Released>(state) ? std::nullopt : std::optional(state.info.base);
}

void check_phases(const SourceState& before, const SourceState& after, Nanos now) {
  const auto k = may_run_as(before);
  const auto* waited = in<Barrier>(before);
  CKPT_CHECK(after.phase.index() >= before.phase.index(), "SW-1: a source returns to no earlier phase");
  CKPT_CHECK(!is_closed(before) || after.phase.index() == before.phase.index(),
             "SW-13: a released source does not resume, and a source that owns the job is not released");
  CKPT_CHECK(!in<Released>(after) || holds_job(before) || is_closed(before),
             "SW-13: only a source with BARRIER is released");
  if (const auto* owner = in<Owner>(after))
    CKPT_CHECK(owner->k == k.value_or(before.info.base), "SW-8: an owner continues with its old incarnation");
  const auto* leased = in<Leased>(after);
  if (leased == nullptr) return;
  CKPT_CHECK(holds_job(before), "SW-12: only a source with BARRIER accepts a grant");
  CKPT_CHECK(waited ? leased->k > before.info.base : leased->k >= k,
             "SW-12: the incarnation of a source never falls");
  CKPT_CHECK(!waited || (!waited->dead && now >= waited->lent_until),
             "SW-10: a source that has given a lease, or whose job has ended, accepts no grant");
}

}  // namespace

void check_step(const SourceState& before, const Step<SourceState>& made, Nanos now) {
  const SourceState& after = made.state;
  check_phases(before, after, now);
  auto k = may_run_as(before);
  bool released = in<Released>(before) != nullptr;
  bool barrier = false;
  for (const Action& action : made.actions) {
    if (const auto* write = std::get_if<WriteRecord>(&action)) {
      CKPT_CHECK(!in<Released>(before), "SW-13: a released source makes no further decisions");
      k = write->record.kind == RecordKind::kResumed ? std::optional(write->record.k) : std::nullopt;
      released = write->record.kind == RecordKind::kReleased;
      barrier = write->record.kind == RecordKind::kBarrier;
    } else if (const auto* run = std::get_if<RunInstance>(&action)) {
      CKPT_CHECK(run->k == k, "SW-2: a source runs only as the incarnation that it has recorded");
      CKPT_CHECK(run->deadline ? *run->deadline > now : in<Owner>(after) != nullptr,
                 "SW-8: a source without a valid lease runs only as the owner");
    } else if (std::holds_alternative<ReleaseManifest>(action)) {
      CKPT_CHECK(barrier, "SW-4: BARRIER is written before the final manifest is sent");
    } else if (std::holds_alternative<FreeSource>(action)) {
      CKPT_CHECK(released, "SW-13: RELEASED is written before the source frees memory");
    } else if (const auto* send = std::get_if<Send>(&action)) {
      if (const auto* resumed = std::get_if<wire::Resumed>(&send->body))
        CKPT_CHECK(resumed->k == k, "SW-2: RESUMED is written before it is sent");
      if (std::holds_alternative<wire::Released>(send->body))
        CKPT_CHECK(released, "SW-2: RELEASED is written before it is sent");
      if (const auto* lease = std::get_if<wire::Lease>(&send->body))
        CKPT_CHECK(
            in<Barrier>(after) && lease->k > before.info.base &&
                in<Barrier>(after)->lent_until >= now + static_cast<Nanos>(lease->term_ms) * kNanosPerMs,
            "SW-10: only a source with BARRIER gives a lease, and it records the lease's end");
    }
  }
}

}  // namespace ckpt::migration
