// SPDX-License-Identifier: Apache-2.0
#include "coordinator/housekeeping.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/clock.h"
#include "libckpt/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::minutes kEvery{1};
constexpr std::int64_t kDayMs = std::int64_t{24} * 3600 * 1000;
// Whoever began something, or watches it, finds out how it ended.
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
  control::asio::steady_timer timer(parts_.executor);
  while (true) {
    while (pass()) co_await control::asio::post(parts_.executor, control::asio::use_awaitable);
    timer.expires_after(kEvery);
    co_await timer.async_wait(control::kTuple);
  }
}

bool Housekeeping::pass() {
  if (auto stored = parts_.jobs.store_memory(); !stored)
    spdlog::error("what jobs hold was not stored: {}", stored.assume_error().to_string());
  const Config& config = parts_.config;
  const std::size_t forgotten = parts_.jobs.forget_old(keep(config.ended_jobs_kept)).size();
  if (forgotten != 0) spdlog::info("{} ended jobs are forgotten", forgotten);
  const bool more_migrations = parts_.migrations.forget_old(keep(config.closed_migrations_kept));
  const bool more_events = parts_.events.forget_old(keep(config.events_kept));
  parts_.health.forget_old(keep(config.findings_kept));
  parts_.evacuations.forget_old(keep(config.ended_evacuations_kept));
  parts_.drains.forget_old(keep(config.ended_drains_kept));
  return forgotten >= Retention::kBatch || more_migrations || more_events;
}

}  // namespace ckpt::coordinator
