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
// A client that began an operation, or watches it, can read how it ended.
constexpr std::int64_t kFreshMs = 600'000;

}  // namespace

Retention Housekeeping::keep(std::int64_t count) const {
  const std::int64_t now = wall_clock_ms();
  const std::int64_t days = parts_.config.history_kept_days;
  Retention keep(static_cast<std::size_t>(count), days == 0 ? 0 : now - days * kDayMs);
  keep.fresh_ms = now - kFreshMs;
  return keep;
}

void Housekeeping::start() {
  control::spawn(parts_.executor, "housekeeping", run());
}

control::Task<> Housekeeping::run() {
  constexpr std::array kSteps = {&Housekeeping::store_what_was_learnt, &Housekeeping::forget_jobs,
                                 &Housekeeping::forget_migrations, &Housekeeping::forget_events,
                                 &Housekeeping::forget_the_rest};
  control::asio::steady_timer timer(parts_.executor);
  while (true) {
    bool more = true;
    while (more) {
      more = false;
      for (const auto step : kSteps) {
        more = (this->*step)() || more;
        co_await control::asio::post(parts_.executor, control::asio::use_awaitable);
      }
    }
    timer.expires_after(kEvery);
    co_await timer.async_wait(control::kTuple);
  }
}

bool Housekeeping::store_what_was_learnt() {
  if (auto stored = parts_.jobs.store_unsaved(); !stored)
    spdlog::error("what jobs hold was not stored: {}", stored.error().to_string());
  return false;
}

bool Housekeeping::forget_jobs() {
  const std::size_t forgotten = parts_.job_runner.forget_old(keep(parts_.config.ended_jobs_kept)).size();
  if (forgotten != 0) spdlog::info("{} ended jobs are forgotten", forgotten);
  return forgotten >= Retention::kBatch;
}

bool Housekeeping::forget_migrations() {
  return parts_.migration_runner.forget_old(keep(parts_.config.closed_migrations_kept));
}

bool Housekeeping::forget_events() {
  return parts_.events.forget_old(keep(parts_.config.events_kept));
}

bool Housekeeping::forget_the_rest() {
  const Config& config = parts_.config;
  parts_.health.forget_old(keep(config.findings_kept));
  parts_.evacuations.forget_old(keep(config.ended_evacuations_kept));
  parts_.drains.forget_old(keep(config.ended_drains_kept));
  return false;
}

}  // namespace ckpt::coordinator
