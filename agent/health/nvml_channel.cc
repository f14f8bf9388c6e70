// SPDX-License-Identifier: Apache-2.0
#include "agent/health/nvml_channel.h"

#include <algorithm>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {
namespace {

constexpr std::uint32_t kXidRowRemap = 63;
constexpr std::uint32_t kXidRowRemapFailure = 64;

wire::GpuErrors errors_of(const nvml_watch::Report& report) {
  const nvml_watch::Counters& counters = report.counters;
  wire::GpuErrors errors;
  errors.volatile_known = (report.flags & nvml_watch::kVolatileKnown) != 0;
  errors.volatile_corrected = counters.volatile_corrected;
  errors.volatile_uncorrected = counters.volatile_uncorrected;
  errors.aggregate_known = (report.flags & nvml_watch::kAggregateKnown) != 0;
  errors.aggregate_corrected = counters.aggregate_corrected;
  errors.aggregate_uncorrected = counters.aggregate_uncorrected;
  errors.rows_known = (report.flags & nvml_watch::kRowsKnown) != 0;
  errors.rows_corrected = counters.rows_corrected;
  errors.rows_uncorrected = counters.rows_uncorrected;
  return errors;
}

// Counts new uncorrected errors relative to the previously known counters. The volatile counter is reset when
// the driver is loaded.
std::uint64_t new_uncorrected(const wire::GpuErrors& before, const wire::GpuErrors& now) {
  const auto rise = [](bool known, std::uint64_t from, std::uint64_t to) {
    return known && to > from ? to - from : 0;
  };
  return std::max(rise(before.volatile_known && now.volatile_known, before.volatile_uncorrected,
                       now.volatile_uncorrected),
                  rise(before.aggregate_known && now.aggregate_known, before.aggregate_uncorrected,
                       now.aggregate_uncorrected));
}

}  // namespace

void NvmlChannel::start(const asio::any_io_executor& executor, HealthHelperSettings settings) {
  HealthHelper::Handlers handlers;
  handlers.report = [this](const nvml_watch::Report& report) { handle(report); };
  handlers.silent = [this] { on_silence(); };
  handlers.answers = [this] { on_answers(); };
  helper_ = HealthHelper::create(executor, std::move(settings), std::move(handlers));
  helper_->start();
}

void NvmlChannel::stop() {
  if (helper_) helper_->stop();
}

void NvmlChannel::cards_changed() {
  const bool all_named = std::all_of(gpus_.all().begin(), gpus_.all().end(), [this](const KnownGpu& gpu) {
    return gpu.gone || std::any_of(uuids_.begin(), uuids_.end(),
                                   [&](const auto& named) { return named.second == gpu.uuid; });
  });
  if (helper_ && !uuids_.empty() && !all_named) helper_->renew();
}

void NvmlChannel::handle(const nvml_watch::Report& report) {
  if (report.kind == nvml_watch::Kind::kGpu) {
    uuids_[report.gpu] = nvml_watch::gpu_name(report).uuid;
    return;
  }
  if (report.kind != nvml_watch::Kind::kState && report.kind != nvml_watch::Kind::kXid) return;
  KnownGpu* gpu = gpus_.of_uuid(uuids_[report.gpu]);
  if (gpu == nullptr || gpu->gone)
    return;  // the GPU belongs to another node on this machine, or was removed
             // from this one
  if (report.kind == nvml_watch::Kind::kState) return on_state(*gpu, report);
  SeenEvent event;
  event.gpu = gpu->uuid;
  event.source = "nvml";
  event.xid = report.xid;
  handlers_.saw(std::move(event));
}

// Handles a state of a GPU. Only a change to a worse state is an event. The state is stored, so that a
// restarted agent does not treat it as new.
void NvmlChannel::on_state(KnownGpu& gpu, const nvml_watch::Report& report) {
  const KnownGpu before = gpu;
  gpu.lost = (report.flags & nvml_watch::kLost) != 0;
  if (!gpu.lost) {
    gpu.recovery_known = (report.flags & nvml_watch::kRecoveryKnown) != 0;
    gpu.recovery = report.recovery;
    gpu.remap_pending = (report.flags & nvml_watch::kRemapPending) != 0;
    gpu.remap_failed = (report.flags & nvml_watch::kRemapFailed) != 0;
    gpu.errors = errors_of(report);
  }
  SeenEvent event;
  event.gpu = gpu.uuid;
  if (gpu.lost && !before.lost) {
    event.source = "nvml";
    event.lost = true;
    return handlers_.saw(std::move(event));
  }
  if (gpu.recovery != before.recovery && gpu.recovery != 0) {
    event.source = "recovery-action";
    return handlers_.saw(std::move(event));
  }
  const bool rows =
      (gpu.remap_pending && !before.remap_pending) || (gpu.remap_failed && !before.remap_failed);
  if (rows) {
    event.source = "nvml";
    event.xid = gpu.remap_failed && !before.remap_failed ? kXidRowRemapFailure : kXidRowRemap;
    return handlers_.saw(std::move(event));
  }
  if (const std::uint64_t errors = new_uncorrected(before.errors, gpu.errors); errors > 0) {
    event.source = "nvml";
    event.uncorrected = errors;
    return handlers_.saw(std::move(event));
  }
  // Corrected errors may occur every second, so their counters are stored with the next change of another
  // value.
  const bool same = gpu.lost == before.lost && gpu.recovery_known == before.recovery_known &&
                    gpu.recovery == before.recovery && gpu.remap_pending == before.remap_pending &&
                    gpu.remap_failed == before.remap_failed &&
                    gpu.errors.volatile_known == before.errors.volatile_known &&
                    gpu.errors.aggregate_known == before.errors.aggregate_known;
  if (!same) handlers_.changed();
}

void NvmlChannel::on_silence() {
  for (KnownGpu& gpu : gpus_.all()) {
    if (gpu.gone || std::exchange(gpu.silent, true)) continue;
    SeenEvent event;
    event.gpu = gpu.uuid;
    event.source = "watchdog";
    handlers_.saw(std::move(event));
  }
}

void NvmlChannel::on_answers() {
  for (KnownGpu& gpu : gpus_.all()) gpu.silent = false;
  handlers_.changed();
}

}  // namespace ckpt::agent
