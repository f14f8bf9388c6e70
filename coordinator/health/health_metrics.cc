// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/health_metrics.h"

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

using metrics::Series;

constexpr double kMsPerSecond = 1e3;
constexpr std::int64_t kIntervalsUntilOverdue = 3;

std::int64_t newest_image_ms(const Job& job) {
  return job.snapshot ? job.snapshot->image.barrier_ms : 0;
}

bool runs_protected(const Job& job) {
  return job.protection && holds_gpu(job.state);
}

void observe_gpus(metrics::Registry& registry, const HealthMetricsDependencies& deps) {
  registry.gauge("gpumigrate_gpu_healthy",
                 "1 if the GPU is healthy, else 0 (gpumigrate gpus shows the reason).", {"node", "gpu"},
                 [deps](Series& out) {
                   for (const auto& [name, node] : deps.nodes.all()) {
                     for (const wire::GpuInfo& gpu : node.gpus) {
                       const auto fault = deps.faults.find(Place(name, gpu.index));
                       const bool healthy = gpu.healthy && !(fault && fault->is_unhealthy());
                       out.add({name, std::to_string(gpu.index)}, healthy ? 1 : 0);
                     }
                   }
                 });
}

void observe_evacuations(metrics::Registry& registry, const HealthMetricsDependencies& deps) {
  registry.gauge("gpumigrate_breaker_open", "1 while the circuit breaker prevents automatic moves.", {},
                 [deps](Series& out) { out.add(deps.policy.breaker().open ? 1 : 0); });
  registry.gauge("gpumigrate_evacuations_open", "Jobs that are still to be evacuated from a faulty GPU.", {},
                 [deps](Series& out) { out.add(static_cast<double>(deps.evacuations.open().size())); });
  registry.gauge("gpumigrate_jobs_left_on_bad_gpu",
                 "Live jobs that an evacuation left on a faulty GPU: an operator must act.", {},
                 [deps](Series& out) {
                   std::set<JobId> left;
                   for (const auto& [id, evacuation] : deps.evacuations.all()) {
                     const Job* job = deps.jobs.find(evacuation.job);
                     if (job != nullptr && is_left_there(evacuation, *job)) left.insert(job->id);
                   }
                   out.add(static_cast<double>(left.size()));
                 });
}

void observe_rest(metrics::Registry& registry, const HealthMetricsDependencies& deps) {
  registry.gauge("gpumigrate_oldest_parked_job_timestamp_seconds",
                 "Unix time at which the longest-waiting parked job was parked, among those that resume "
                 "automatically; absent if there is no such job.",
                 {}, [deps](Series& out) {
                   std::int64_t oldest = 0;
                   for (const Job& job : deps.jobs.live()) {
                     if (job.state != JobState::kParked || !job.resumes_itself || job.parked_ms == 0)
                       continue;
                     oldest = oldest == 0 ? job.parked_ms : std::min(oldest, job.parked_ms);
                   }
                   if (oldest != 0) out.add(static_cast<double>(oldest) / kMsPerSecond);
                 });
  registry.gauge("gpumigrate_oldest_image_timestamp_seconds",
                 "Unix time of the oldest image among the newest images of running protected jobs; absent if "
                 "there is no such image.",
                 {}, [deps](Series& out) {
                   std::int64_t oldest = 0;
                   for (const Job& job : deps.jobs.live()) {
                     const std::int64_t newest = newest_image_ms(job);
                     if (!runs_protected(job) || newest == 0) continue;
                     oldest = oldest == 0 ? newest : std::min(oldest, newest);
                   }
                   if (oldest != 0) out.add(static_cast<double>(oldest) / kMsPerSecond);
                 });
  registry.gauge("gpumigrate_images_overdue",
                 "Running protected jobs without an image in their last three intervals.", {},
                 [deps](Series& out) {
                   const std::int64_t now = wall_clock_ms();
                   const auto live = deps.jobs.live();
                   out.add(static_cast<double>(std::count_if(
                       live.begin(), live.end(), [now](const Job& job) { return is_overdue(job, now); })));
                 });
}

}  // namespace

bool is_overdue(const Job& job, std::int64_t now_ms) {
  if (!runs_protected(job)) return false;
  const std::int64_t since = std::max(newest_image_ms(job), job.started_ms);
  return now_ms - since > kIntervalsUntilOverdue * job.protection->every_ms;
}

bool is_left_there(const Evacuation& e, const Job& job) {
  if (e.state != EvacuationState::kLeft || !holds_gpu(job.state)) return false;
  const bool same = e.incarnation == 0 || e.incarnation == job.segments.back().incarnation;
  return same && std::any_of(job.ranks.begin(), job.ranks.end(),
                             [&e](const JobRank& rank) { return rank.place == e.from; });
}

void observe_health(metrics::Registry& registry, HealthMetricsDependencies deps) {
  observe_gpus(registry, deps);
  observe_evacuations(registry, deps);
  observe_rest(registry, deps);
}

}  // namespace ckpt::coordinator
