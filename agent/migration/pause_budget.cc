// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/pause_budget.h"

#include <algorithm>

#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

void PauseBudget::set_work(PauseWork work, std::optional<wire::PauseFacts> last_pause) {
  work_ = std::move(work);
  last_pause_ = std::move(last_pause);
}

void PauseBudget::estimate(const std::vector<wire::CostLine>& target) {
  target_ = target;
  make_estimate();
  reported_ = estimate_;
}

void PauseBudget::make_estimate() {
  if (!work_) return;
  const PauseLines own = pause_lines(context_, work_->kind());
  PauseLines there = own;
  if (target_.size() == there.size()) std::copy(target_.begin(), target_.end(), there.begin());
  estimate_ = estimate_pause(*work_, own, there, last_pause_);
}

void PauseBudget::revise(PauseWork work) {
  if (!work_) return;
  work_ = std::move(work);
  make_estimate();
}

void PauseBudget::set_limits(std::int64_t max_downtime_ns, std::int64_t bandwidth) {
  if (max_downtime_ns >= 0) set_max_downtime_ns_ = max_downtime_ns;
  if (bandwidth >= 0) set_bandwidth_ = static_cast<std::uint64_t>(bandwidth);
}

Nanos PauseBudget::limit() const {
  return set_max_downtime_ns_.value_or(options_.max_downtime_ns);
}

bool PauseBudget::gives_up() const {
  return options_.if_not_converged == wire::NotConverged::kAbort;
}

wire::MigrateOptions PauseBudget::options() const {
  wire::MigrateOptions options = options_;
  options.max_downtime_ns = limit();
  options.bandwidth_bytes_per_second = set_bandwidth_.value_or(options_.bandwidth_bytes_per_second);
  return options;
}

void PauseBudget::learn(const wire::SourceReport& report, Nanos verified_received_ns) {
  if (!work_) return;
  const wire::SourceReport& r = report;
  wire::PauseNumbers took;
  const auto span = [](Nanos from, Nanos to) { return std::max<Nanos>(0, to - from); };
  took[PauseTerm::kQuiesce] = span(r.barrier_entered_ns, r.paused_ns);
  if (r.context_saved_ns != 0) took[PauseTerm::kContextSave] = span(r.paused_ns, r.context_saved_ns);
  if (r.host_saved_ns != 0) {
    took[PauseTerm::kDump] = span(r.context_saved_ns, r.host_saved_ns);
    took[PauseTerm::kFinal] = span(r.host_saved_ns, r.last_ack_ns);
  }
  took[PauseTerm::kVerify] =
      span(std::max({r.last_ack_ns, r.context_saved_ns, r.host_saved_ns}), verified_received_ns);
  context_.pauses->learn_copy(r.state_bytes, std::max(r.scan_ns, r.copy_ns));
  context_.pauses->learn(*work_, took, false);
}

}  // namespace ckpt::agent
