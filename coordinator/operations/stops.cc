// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/stops.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

bool lives(const wire::JobInstance& instance) {
  return !is_over(instance.phase);
}

}  // namespace

Stops::Stops(Parts parts) : parts_(std::move(parts)) {
  parts_.migrations.moved().subscribe([this](JobId id) { carry_out_later(id); });
}

Result<void> Stops::begin(Job& job, std::int64_t grace_ms) {
  if (is_ended(job.state)) return ok();
  if (job.state == JobState::kParked) {
    const auto silent =
        std::find_if(job.may_live_on.begin(), job.may_live_on.end(),
                     [this](const std::string& name) { return !parts_.nodes.connected(name); });
    parts_.lifecycle.stop_parked(job, silent == job.may_live_on.end() ? "" : *silent);
    parts_.ends.prove_soon(job.id);  // a start that was given up ends before its node has finished it
    return ok();
  }
  CKPT_TRYV(parts_.lifecycle.request_stop(job, grace_ms));
  const JobId id = job.id;
  std::erase_if(told_, [&](const Told& told) { return std::get<1>(told) == id; });
  carry_out(id);
  return ok();
}

void Stops::carry_out_later(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->stop_requested) return;
  control::asio::post(parts_.executor, [this, id] { carry_out(id); });
}

void Stops::on_inventory(const Node& node) {
  std::set<JobId> concerned;
  for (const wire::JobInstance& instance : node.instances) concerned.insert(instance.job);
  for (const JobId id : parts_.jobs.to_be_stopped()) {
    const Job* job = parts_.jobs.find(id);
    const bool there =
        job != nullptr && (job->node() == node.row.name || job->may_live_on.contains(node.row.name));
    if (there) concerned.insert(id);
  }
  std::erase_if(told_, [&](const Told& told) {
    return std::get<0>(told) == node.row.name && !concerned.contains(std::get<1>(told));
  });
  for (const JobId id : concerned) carry_out(id);
}

void Stops::on_instance(const wire::JobInstance& instance) {
  carry_out(instance.job);
}

void Stops::on_lost(const Node& node) {
  std::erase_if(told_, [&](const Told& told) { return std::get<0>(told) == node.row.name; });
  for (const Migration& migration : parts_.migrations.open()) {
    if (migration.from.node == node.row.name || migration.to.node == node.row.name)
      carry_out_later(migration.job);
  }
}

void Stops::carry_out(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->stop_requested || job->operation) return;
  const Migration* open = open_of(*job);
  if (open != nullptr) {
    if (!aborted_.contains(open->id)) abort(*open);
    open = open_of(*job);
  }
  if (open != nullptr) {
    const std::string alone = alone_on(*open);
    if (const Node* node = alone.empty() ? nullptr : parts_.nodes.find(alone)) tell(*node, *job);
    return;
  }
  std::erase_if(aborted_, [&](MigrationId aborted) {
    const Migration* migration = parts_.migrations.find(aborted);
    return migration == nullptr || !migration->open();
  });
  for (const auto& [name, node] : parts_.nodes.all()) tell(node, *job);
  parts_.ends.prove_soon(id);
}

const Migration* Stops::open_of(const Job& job) const {
  if (const Migration* own = parts_.migrations.open_of(job.id)) return own;
  if (job.spec.gang.id == 0) return nullptr;
  for (const Job* rank : parts_.jobs.ranks_of(job.spec.gang.id))
    if (const Migration* other = parts_.migrations.open_of(rank->id)) return other;
  return nullptr;
}

void Stops::abort(const Migration& open) {
  const MigrationId id = open.id;
  aborted_.insert(id);
  // Too late is no failure: the owner of the job is told then.
  if (auto aborted = parts_.migration_runner.abort(id, "Job " + open.job_name + " is to be stopped");
      !aborted)
    spdlog::info("migration {} is not aborted for a stop: {}", migration_text(id),
                 aborted.error().to_string());
}

std::string Stops::alone_on(const Migration& open) const {
  const bool target_runs = open.runs_at == Side::kTarget;
  const bool source_runs = !target_runs && open.incarnation > open.base;
  if (target_runs && !parts_.nodes.connected(open.from.node)) return open.to.node;
  if (source_runs && !parts_.nodes.connected(open.to.node)) return open.from.node;
  return {};
}

// An instance may run as a higher incarnation than the one it was started as.
void Stops::tell(const Node& node, const Job& job) {
  if (!node.connected()) return;
  wire::StopJob message;
  message.job = job.id;
  message.incarnation = job.incarnation;
  bool found = false;
  for (const wire::JobInstance& instance : node.instances) {
    if (instance.job != job.id || !lives(instance)) continue;
    found = true;
    message.incarnation = std::max(message.incarnation, instance.incarnation);
  }
  const Told told(node.row.name, job.id, message.incarnation);
  if (!found || !told_.insert(told).second) return;
  message.grace_ns = job.stop_grace_ms * kNanosPerMs;
  // The node's next inventory looks again.
  parts_.calls.tell(node.row.name, message, [this, told] { told_.erase(told); });
}

}  // namespace ckpt::coordinator
