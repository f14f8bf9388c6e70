// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/health_views.h"

#include "coordinator/api/optional_text.h"

namespace ckpt::coordinator {

api::Finding finding_view(const Finding& finding) {
  const wire::HealthFinding& reported = finding.reported;
  api::Finding view;
  view.node = finding.node;
  view.number = reported.number;
  view.time = time_text(reported.time_ms);
  view.gpu = reported.gpu;
  view.gpu_uuid = text_if_any(reported.gpu_uuid);
  view.source = reported.source;
  if (reported.xid != 0) view.xid = reported.xid;
  view.recovery = reported.recovery;
  view.cordon = reported.cordon;
  view.paused = finding.paused;
  view.urgent = reported.urgent;
  view.leave_node = reported.leave_node;
  view.outcome = record::name_of(reported.outcome);
  view.reason = text_if_any(reported.reason);
  for (const wire::JobVerdict& verdict : reported.jobs)
    view.jobs.push_back({.job = job_text(verdict.job),
                         .outcome = std::string(record::name_of(verdict.outcome)),
                         .reason = text_if_any(verdict.reason)});
  return view;
}

api::Evacuation evacuation_view(const Evacuation& e) {
  api::Evacuation view;
  view.id = evacuation_text(e.id);
  view.job = job_text(e.job);
  view.job_name = e.job_name;
  view.state = to_string(e.state);
  view.open = e.open();
  view.outcome = record::name_of(e.outcome);
  view.urgent = e.urgent;
  view.from = to_text(e.from);
  if (e.to) view.to = to_text(*e.to);
  if (e.migration != 0) view.migration = migration_text(e.migration);
  view.attempts = e.started_ms.size();
  view.lost_ms = e.lost_ms;
  view.created = time_text(e.created_ms);
  view.ended = time_if_any(e.ended_ms);
  view.reason = text_if_any(e.reason);
  view.note = text_if_any(e.note);
  return view;
}

api::Policy policy_view(const PolicyTable& policy, const Evacuations& evacuations) {
  const Breaker& breaker = policy.breaker();
  const EvacuationLimits& limits = evacuations.limits();
  api::Policy view;
  for (const auto& [node, is_paused] : policy.nodes())
    if (is_paused) view.paused.push_back(node);
  view.breaker = {.open = breaker.open,
                  .since = time_if_any(breaker.since_ms),
                  .reason = text_if_any(breaker.reason),
                  .recent = evacuations.recent(),
                  .limit = limits.breaker_count,
                  .window_ms = limits.breaker_window_ms};
  view.attempts_per_job = limits.attempts_per_job;
  view.parallel = limits.parallel;
  return view;
}

}  // namespace ckpt::coordinator
