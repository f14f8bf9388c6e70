// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/housekeeping.h"

#include <spdlog/spdlog.h>

#include <array>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::minutes kEvery{1};
constexpr std::int64_t kDayMs = std::int64_t{24} * 3600 * 1000;
// The time for which finished entries are always kept. In this time a client that began or watches an
// operation can read its outcome.
constexpr std::int64_t kFreshMs = 600'000;

}  // namespace

Retention Housekeeping::retention(std::int64_t count) const {
  const std::int64_t now = wall_clock_ms();
  const std::int64_t days = deps_.config.history_kept_days;
  Retention limits(static_cast<std::size_t>(count), days == 0 ? 0 : now - days * kDayMs);
  limits.fresh_ms = now - kFreshMs;
  return limits;
}

void Housekeeping::start() {
  control::spawn(deps_.executor, "housekeeping", run());
}

control::Task<> Housekeeping::run() {
  constexpr std::array kSteps = {&Housekeeping::store_what_was_learnt, &Housekeeping::remove_jobs,
                                 &Housekeeping::remove_migrations, &Housekeeping::remove_events,
                                 &Housekeeping::remove_other_entries};
  control::asio::steady_timer timer(deps_.executor);
  while (true) {
    bool more = true;
    while (more) {
      more = false;
      for (const auto step : kSteps) {
        more = (this->*step)() || more;
        co_await control::asio::post(deps_.executor, control::asio::use_awaitable);
      }
    }
    timer.expires_after(kEvery);
    co_await timer.async_wait(control::kTuple);
  }
}

bool Housekeeping::store_what_was_learnt() {
  if (auto stored = deps_.jobs.store_unsaved(); !stored)
    spdlog::error("changes of jobs were not stored: {}", stored.error().to_string());
  return false;
}

bool Housekeeping::remove_jobs() {
  const std::size_t forgotten = deps_.job_runner.prune(retention(deps_.config.ended_jobs_kept)).size();
  if (forgotten != 0) spdlog::info("{} ended jobs were removed from the store", forgotten);
  return forgotten >= Retention::kBatch;
}

bool Housekeeping::remove_migrations() {
  return deps_.migration_runner.prune(retention(deps_.config.closed_migrations_kept));
}

bool Housekeeping::remove_events() {
  return deps_.events.prune(retention(deps_.config.events_kept));
}

bool Housekeeping::remove_other_entries() {
  const Config& config = deps_.config;
  deps_.health.prune(retention(config.findings_kept));
  deps_.evacuations.prune(retention(config.ended_evacuations_kept));
  deps_.drains.prune(retention(config.ended_drains_kept));
  return false;
}

}  // namespace ckpt::coordinator
