// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/protection/protection_rules.h"

#include <utility>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMinTransparentMs = 300'000;

}  // namespace

Protection after_snapshot(Protection protection, const Result<void>& captured) {
  protection.failures = captured ? 0 : protection.failures + 1;
  protection.error = captured ? "" : captured.error().to_string();
  return protection;
}

bool pays_for_host_state(const Job& job) {
  return job.spec.mode != MigrationMode::kCooperative;
}

bool is_too_often(const Job& job, std::int64_t every_ms) {
  return pays_for_host_state(job) && every_ms < kMinTransparentMs;
}

std::optional<double> pause_of_last(const Job& job) {
  // The last image of a parked job has no pause time.
  if (job.snapshot && job.snapshot->pause_ns > 0)
    return static_cast<double>(job.snapshot->pause_ns) / kNanosPerMs;
  return job.last_downtime_ms;
}

}  // namespace ckpt::coordinator
