// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/order_sender.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kAnswer{10};
constexpr std::chrono::seconds kEvery{1};

wire::StopJob message_of(JobId id, const lifecycle::EndOrder& order) {
  wire::StopJob message;
  message.job = id;
  message.incarnation = order.up_to;
  message.grace_ns = order.grace_ms * kNanosPerMs;
  return message;
}

bool may_have_orders(const Job& job) {
  return job.stop_requested || job.unfenced || !job.unfenced_nodes.empty();
}

}  // namespace

OrderSender::OrderSender(Dependencies deps) : deps_(std::move(deps)) {
  deps_.migrations.moved().subscribe([this](JobId id) { send_later(id); });
  deps_.job_runner.stepped().subscribe([this](JobId id) { send_later(id); });
}

void OrderSender::start() {
  for (const Job& job : deps_.jobs.live()) deps_.job_runner.settle(job.id);
  control::spawn(deps_.executor, "orders that are due", run());
}

control::Task<> OrderSender::run() {
  control::asio::steady_timer timer(deps_.executor);
  while (true) {
    if (deps_.jobs.has_refused_facts()) {
      if (auto stored = deps_.jobs.store_unsaved(); !stored)
        spdlog::error("changes of jobs are not stored yet: {}", stored.error().to_string());
    }
    std::set<JobId> settled;
    for (const Job& job : deps_.jobs.live()) {
      if (deps_.jobs.is_refused(job.id))
        continue;  // the job's rules wait until the store accepts the job's
                   // facts
      if (settled.insert(job.whole()).second) deps_.job_runner.settle(job.id);
    }
    send_retries();
    timer.expires_after(kEvery);
    co_await timer.async_wait(control::kTuple);
  }
}

void OrderSender::fence(const Node& node, const wire::JobInstance& instance) {
  const Job* job = deps_.jobs.find(instance.job);
  const Incarnation fenced = job != nullptr ? job->fenced : deps_.jobs.fenced_of_removed(instance.job);
  const auto order = lifecycle::fence_order(fenced, node.row.name, instance);
  if (!order) return;
  spdlog::warn("node {} has an instance of {} that must no longer run: the instance is being ended",
               node.row.name, job_text(instance.job));
  deps_.calls.send(node.row.name, message_of(instance.job, *order));
}

void OrderSender::on_inventory(const Node& node) {
  std::set<JobId> concerned;
  for (const wire::JobInstance& instance : node.instances) concerned.insert(instance.job);
  for (const JobId id : deps_.jobs.to_be_stopped()) {
    const Job* job = deps_.jobs.find(id);
    if (job != nullptr && (job->node() == node.row.name || job->unfenced_nodes.contains(node.row.name)))
      concerned.insert(id);
  }
  std::erase_if(sent_, [&](const Sent& sent) {
    return sent.second.node == node.row.name && !concerned.contains(sent.first);
  });
  for (const JobId id : concerned) send(id);
}

void OrderSender::on_lost(const Node& node) {
  std::erase_if(sent_, [&](const Sent& sent) { return sent.second.node == node.row.name; });
  for (const Migration& migration : deps_.migrations.open()) {
    if (migration.from.node == node.row.name || migration.to.node == node.row.name) send_later(migration.job);
  }
}

void OrderSender::retry(JobId id, std::chrono::steady_clock::duration after) {
  retries_[id] = std::chrono::steady_clock::now() + after;
}

void OrderSender::send_retries() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<JobId> due;
  for (const auto& [id, at] : retries_)
    if (at <= now) due.push_back(id);
  for (const JobId id : due) {
    retries_.erase(id);
    send(id);
  }
}

void OrderSender::send_later(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !may_have_orders(*job)) return;
  control::asio::post(deps_.executor, [this, id] { send(id); });
}

void OrderSender::send(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !may_have_orders(*job)) return;
  if (deps_.jobs.is_refused(id)) return retry(id, kEvery);
  const Migration* open = open_of(*job);
  for (const lifecycle::Order& order : lifecycle::due_orders(*job, open, deps_.view)) {
    if (std::holds_alternative<lifecycle::AbortOrder>(order)) {
      if (abort(id, *open))
        return send(id);  // the abort may have closed the migration, so the job's orders are computed again
    } else if (const auto* end = std::get_if<lifecycle::EndOrder>(&order)) {
      send(id, *end);
    } else if (const auto* proof = std::get_if<lifecycle::ProofOrder>(&order)) {
      control::spawn(deps_.executor, "asking " + proof->node + " for its instances of " + job_text(id),
                     ask(id, *proof));
    }
  }
}

const Migration* OrderSender::open_of(const Job& job) const {
  if (const Migration* own = deps_.view.open_migration(job.id)) return own;
  for (const Job* rank : deps_.jobs.ranks_of(job.whole()))
    if (const Migration* other = deps_.view.open_migration(rank->id)) return other;
  return nullptr;
}

bool OrderSender::abort(JobId id, const Migration& open) {
  std::erase_if(aborted_, [this](MigrationId aborted) {
    const Migration* migration = deps_.migrations.find(aborted);
    return migration == nullptr || !migration->open();
  });
  const MigrationId migration = open.id;
  if (!aborted_.insert(migration).second) return false;
  // An abort that arrives too late is not a failure. The job's owner receives the order in that case.
  if (auto aborted = deps_.migration_runner.abort(migration, "Job " + open.job_name + " is being stopped");
      !aborted)
    spdlog::info("migration {} was not aborted to stop {}: {}", migration_text(migration), job_text(id),
                 aborted.error().to_string());
  return true;
}

void OrderSender::send(JobId id, const lifecycle::EndOrder& order) {
  const Sent sent(id, order);
  if (!sent_.insert(sent).second) return;
  deps_.calls.send(order.node, message_of(id, order), [this, sent] {
    sent_.erase(sent);
    retry(sent.first, kEvery);
  });
}

control::Task<> OrderSender::prove(JobId id, std::string node) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return;
  lifecycle::ProofOrder order{std::move(node), lifecycle::given_up_to(*job, deps_.view)};
  co_await ask(id, std::move(order));
}

control::Task<> OrderSender::ask(JobId id, lifecycle::ProofOrder order) {
  if (!asked_.emplace(id, order.node).second) co_return;
  wire::StopJob message = message_of(id, {order.node, order.up_to, 0});
  const auto answer = co_await deps_.calls.call(order.node, std::move(message), kAnswer);
  asked_.erase({id, order.node});
  if (answer || answer.error().code() == ErrorCode::kNotFound)
    co_return deps_.job_runner.fact(id, lifecycle::Proven{order.node, order.up_to});
  spdlog::warn("it is not known whether processes of {} still run on {}: {}", job_text(id), order.node,
               answer.error().to_string());
  retry(id, kAnswer);
}

}  // namespace ckpt::coordinator
