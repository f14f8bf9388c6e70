// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/instance_ends.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kAnswer{10};

}  // namespace

Incarnation highest_known(const Job& job, const NodeTable& nodes) {
  Incarnation highest = std::max(job.incarnation, job.fenced);
  for (const Segment& segment : job.segments) highest = std::max(highest, segment.incarnation);
  for (const auto& [name, node] : nodes.all()) {
    for (const wire::JobInstance& instance : node.instances) {
      if (instance.job == job.id) highest = std::max(highest, instance.incarnation);
    }
  }
  return highest;
}

bool has_instance(const Node& node, JobId job, Incarnation up_to) {
  return std::any_of(node.instances.begin(), node.instances.end(), [&](const wire::JobInstance& instance) {
    return instance.job == job && instance.incarnation <= up_to && !is_over(instance.phase);
  });
}

// A job that goes on is not meant, only what was given up of it.
Incarnation InstanceEnds::given_up_to(const Job& job) const {
  if (job.operation && job.operation->stage != OperationStage::kTaking) return job.operation->fenced;
  return holds_gpu(job.state) ? job.fenced : highest_known(job, parts_.nodes);
}

void InstanceEnds::prove_soon(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) return;
  for (const std::string& name : job->may_live_on) {
    const Node* node = parts_.nodes.find(name);
    if (node == nullptr || !node->connected() || has_instance(*node, id, given_up_to(*job))) continue;
    control::spawn(parts_.executor, "asking " + name + " what it has of " + job_text(id), prove(id, name));
  }
}

control::Task<> InstanceEnds::prove(JobId id, std::string node) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !asked_.emplace(id, node).second) co_return;
  wire::StopJob order;
  order.job = id;
  order.incarnation = given_up_to(*job);
  const Incarnation up_to = order.incarnation;
  const auto answer = co_await parts_.calls.call(node, std::move(order), kAnswer);
  asked_.erase({id, node});
  note_answer(id, node, up_to, answer);
}

void InstanceEnds::note_answer(JobId id, const std::string& node, Incarnation up_to,
                               const Result<void>& answer) {
  const Job* job = parts_.jobs.find(id);
  const Node* there = parts_.nodes.find(node);
  if (job == nullptr || there == nullptr || !there->connected() || !job->may_live_on.contains(node)) return;
  if (!answer && answer.error().code() != ErrorCode::kNotFound) {
    spdlog::warn("whether something of {} lives on {} is not known: {}", job_text(id), node,
                 answer.error().to_string());
    return;
  }
  if (given_up_to(*job) > up_to || has_instance(*there, id, up_to)) return;
  Job changed = *job;
  changed.may_live_on.erase(node);
  if (auto stored = parts_.jobs.replace(std::move(changed)); !stored)
    spdlog::error("that {} has nothing of {} was not stored: {}", node, job_text(id),
                  stored.error().to_string());
}

}  // namespace ckpt::coordinator
