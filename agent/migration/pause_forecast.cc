// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/pause_forecast.h"

#include <algorithm>

#include "agent/host_process/early_pages/early_pages.h"
#include "agent/host_process/early_pages/left_out_pages.h"
#include "agent/host_process/early_pages/memory_watch.h"
#include "agent/migration/modes/adopted_mode.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/modes/process_files.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/swap_mode.h"
#include "libckpt/net/control/at_once.h"

namespace ckpt::agent {
namespace {

constexpr std::chrono::seconds kForecastHolds{60};

}  // namespace

Task<> PauseForecast::refresh(bool moves_processes) {
  const auto jobs = context_.jobs.all();
  std::erase_if(refreshed_at_, [&](const auto& entry) {
    return std::none_of(jobs.begin(), jobs.end(),
                        [&](const auto& job) { return job->folder() == entry.first && !job->ended(); });
  });
  std::vector<Task<>> refreshes;
  for (const auto& job : jobs) {
    if (job->phase() == local::Phase::kRunning && !job->ended() && !job->unknown() && mark_if_due(*job))
      refreshes.push_back(refresh_job(job, moves_processes));
  }
  co_await control::at_once(context_.executor, "a pause's forecast", std::move(refreshes));
}

bool PauseForecast::mark_if_due(const Job& job) {
  const auto now = std::chrono::steady_clock::now();
  const auto [at, fresh] = refreshed_at_.try_emplace(job.folder(), now);
  if (!fresh && now - at->second < kForecastHolds) return false;
  at->second = now;
  return true;
}

Task<> PauseForecast::refresh_job(std::shared_ptr<Job> job, bool moves_processes) {
  const local::StateSummary summary = job->summary();
  const Nanos copy = context_.pauses->costs().copy_line().at(static_cast<std::int64_t>(summary.state_bytes));
  const auto whole = [this](const PauseWork& work, Nanos device_copy) {
    const PauseLines lines = pause_lines(context_, work.kind());
    const PauseEstimate estimate = estimate_pause(work, lines, lines, std::nullopt);
    return estimate.fixed() + std::max(estimate.beside, device_copy);
  };
  const MigrationMode mode = job->record().spec.mode;
  if (mode == MigrationMode::kCooperative) {
    const Nanos pause = whole(common_work(PauseKind::kCooperative), copy);
    job->set_obstacles(0);
    co_return job->expect_pauses(pause, pause);
  }
  if (moves_processes) job->set_obstacles(co_await count_obstacles(context_, job));
  const auto root = static_cast<pid_t>(job->rank_pid());
  const auto measure = [root, this] {
    if (!node_) node_ = {host::kernel_watches_memory(), !host::left_out_pages_library().empty()};
    return host::size_of_tree(root);
  };
  host::TreeSize size = co_await offload(context_.images, measure);
  if (job->ended() || size.processes == 0) co_return;
  Nanos here = 0;
  Nanos away = 0;
  if (mode == MigrationMode::kAdopted) {
    const std::uint64_t device = job->record().device_bytes;
    here = whole(adopted_work(size, device, true), 0);
    away = whole(adopted_work(size, device, false), 0);
  } else {
    const bool imports = context_.remap.imports();
    const std::uint64_t device = summary.region_bytes;
    const std::uint64_t context = context_bytes(context_, size, device);
    const std::uint64_t ahead = summary.host_state_bytes == 0 && node_->copies_ahead ? size.private_bytes : 0;
    size.private_bytes += context;
    HostMemoryWork memory = host_memory_work(size, device, 0);
    if (ahead >= host::kMinFollowedBytes) memory = copied_ahead(memory, ahead, 0, node_->leaves_out);
    here = whole(swap_work(device, imports), copy);
    away = whole(process_work(size, memory, device, can_stream(size.private_bytes), imports), copy);
  }
  job->expect_pauses(here, moves_processes ? away : 0);
}

}  // namespace ckpt::agent
