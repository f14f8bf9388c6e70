// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/drain/drain.h"

#include <algorithm>
#include <tuple>

namespace ckpt::coordinator {
namespace {

bool has(const Drain& drain, DrainJobState state) {
  return std::any_of(drain.jobs.begin(), drain.jobs.end(),
                     [&](const DrainJob& job) { return job.state == state; });
}

}  // namespace

std::string drain_text(DrainId id) {
  return wire::id_text('d', id);
}

std::string drain_label(const Drain& drain) {
  return drain_text(drain.id) + " of " + to_text(drain.scope);
}

std::string drain_reason(const Drain& drain) {
  return "[gpumigrate] drain " + drain_text(drain.id) + (drain.reason.empty() ? "" : ": " + drain.reason);
}

std::optional<DrainId> parse_drain_id(std::string_view text) {
  return wire::parse_id('d', text);
}

DrainJob* Drain::find(JobId job) {
  const auto at = std::find_if(jobs.begin(), jobs.end(), [&](const DrainJob& d) { return d.job == job; });
  return at == jobs.end() ? nullptr : &*at;
}

bool goes_before(const DrainJob& a, const DrainJob& b) {
  return std::tuple(-std::int64_t{a.priority}, a.state_bytes, a.job) <
         std::tuple(-std::int64_t{b.priority}, b.state_bytes, b.job);
}

DrainResult result_of(const Drain& drain, bool coming, bool deadline_passed) {
  if (has(drain, DrainJobState::kMoving) || has(drain, DrainJobState::kRestoring)) return DrainResult::kNone;
  const bool waiting = coming || has(drain, DrainJobState::kWaiting);
  if (drain.cancelled) return DrainResult::kCancelled;
  if (waiting) return deadline_passed ? DrainResult::kDeadline : DrainResult::kNone;
  const bool all_gone = std::all_of(drain.jobs.begin(), drain.jobs.end(),
                                    [](const DrainJob& job) { return is_gone(job.state); });
  return all_gone ? DrainResult::kEmpty : DrainResult::kIncomplete;
}

int exit_code_of(const Drain& drain) {
  if (has(drain, DrainJobState::kLost)) return 4;
  switch (drain.result) {
    case DrainResult::kEmpty:
      return has(drain, DrainJobState::kRestored) ? 3 : 0;
    case DrainResult::kIncomplete:
      return 1;
    case DrainResult::kDeadline:
    case DrainResult::kCancelled:
      return 2;
    case DrainResult::kNone:
      break;
  }
  return 6;
}

}  // namespace ckpt::coordinator
