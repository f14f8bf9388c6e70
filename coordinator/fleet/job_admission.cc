// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

// Checks the size of the spec when the job is created, because every later message about the job carries the
// same spec.
Result<void> check_spec_size(const wire::JobSpec& spec) {
  const std::size_t bytes = wire::encode(spec).size();
  if (bytes <= wire::kMaxJobSpecBytes) return ok();
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("The job's command and environment have {} bytes, but at most {} are allowed: put "
                           "large values into a file",
                           bytes, wire::kMaxJobSpecBytes));
}

// Returns a name for a job without a name. The name contains the whole id if another job has the short name.
std::string made_up_name(const wire::JobSpec& spec, JobId id,
                         const std::function<bool(const std::string&)>& is_taken) {
  const std::string number = std::to_string(wire::id_number(id));
  std::string stem = spec.argv.front().substr(spec.argv.front().rfind('/') + 1);
  constexpr std::size_t kLongestStem = 40;
  stem = stem.substr(0, kLongestStem);
  if (!valid_job_name(stem + "-" + number)) stem = "job";
  const std::string name = stem + "-" + number;
  return is_taken(name) ? name + job_text(id).substr(1 + number.size()) : name;
}

Error name_is_taken(const std::string& name) {
  return {ErrorCode::kRefused, "A job that has not ended uses the name \"" + name + "\" already"};
}

std::string rank_name(const std::string& job, std::uint32_t rank) {
  return job + "." + std::to_string(rank);
}

// Returns the variables that torchrun sets, as if each rank had its own node with one GPU. A rank sees no
// other GPU than its own, and ranks move one by one. So no two ranks share a node permanently.
std::vector<std::string> rank_environment(std::uint32_t rank, std::uint32_t ranks) {
  return {fmt::format("RANK={}", rank),
          fmt::format("WORLD_SIZE={}", ranks),
          fmt::format("GROUP_RANK={}", rank),
          fmt::format("GROUP_WORLD_SIZE={}", ranks),
          "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=1"};
}

// Returns the job's ranks with the GPUs that the instance reports.
std::vector<JobRank> ranks_of(const wire::JobSpec& spec, const Node& node,
                              const wire::JobInstance& instance) {
  std::vector<JobRank> ranks;
  for (const wire::RankSpec& rank_spec : spec.ranks) {
    JobRank& rank = ranks.emplace_back();
    rank.rank = rank_spec.rank;
    rank.place = Place(node.row.name, rank_spec.gpu_index);
    for (const wire::RankState& state : instance.ranks) {
      if (state.rank == rank.rank) rank.place.gpu = state.gpu_index;
    }
  }
  return ranks;
}

Incarnation reported_incarnation(const wire::JobInstance& instance) {
  return std::max(instance.runs_as, instance.incarnation);
}

}  // namespace

// Creates a job with an id, and with a name if the spec has none.
Result<Job> JobAdmission::make(wire::JobSpec spec, const Place& place, std::string placed) const {
  CKPT_TRYV(check_spec_size(spec));
  if (!spec.name.empty() && table_.is_name_taken(spec.name)) return name_is_taken(spec.name);
  Job job;
  CKPT_TRY(id, table_.next_id());
  job.id = id;
  if (spec.name.empty())
    spec.name =
        made_up_name(spec, id, [this](const std::string& name) { return table_.is_name_taken(name); });
  spec.job = id;
  spec.incarnation = job.incarnation;
  job.spec = std::move(spec);
  job.segments.emplace_back(place.node, job.incarnation);
  for (const wire::RankSpec& rank_spec : job.spec.ranks) {
    JobRank& rank = job.ranks.emplace_back();
    rank.rank = rank_spec.rank;
    rank.place = Place(place.node, rank_spec.gpu_index);
  }
  job.placed = std::move(placed);
  job.started_ms = wall_clock_ms();
  return job;
}

// Returns the specification of each rank. If the job has several ranks, each rank has its own name and
// number, and names the whole job.
Result<std::vector<wire::JobSpec>> JobAdmission::specs_of(wire::JobSpec spec,
                                                          const std::vector<Placing>& placings) const {
  const auto is_taken = [this](const std::string& name) { return table_.is_name_taken(name); };
  const bool is_several = placings.size() > 1;
  if (is_several) {
    if (!spec.name.empty() && is_taken(spec.name)) return name_is_taken(spec.name);
    CKPT_TRY(id, table_.next_id());
    spec.gang.id = id;
    spec.gang.name = spec.name.empty() ? made_up_name(spec, id, is_taken) : spec.name;
    spec.gang.ranks = static_cast<std::uint32_t>(placings.size());
  }
  std::vector<wire::JobSpec> specs;
  for (const Placing& placing : placings) {
    wire::RankSpec rank;
    rank.rank = static_cast<std::uint32_t>(specs.size());
    rank.gpu_index = placing.place.gpu;
    wire::JobSpec& own = specs.emplace_back(spec);
    own.ranks = {rank};
    if (!is_several) continue;
    own.name = rank_name(spec.gang.name, rank.rank);
    if (!valid_job_name(own.name))
      return Error(ErrorCode::kInvalidArgument,
                   "\"" + spec.gang.name + "\" is too long for the name of a job of several ranks");
    for (std::string& variable : rank_environment(rank.rank, spec.gang.ranks))
      own.env.push_back(std::move(variable));
  }
  return specs;
}

Result<WholeJob> JobAdmission::create(wire::JobSpec spec, const std::vector<Placing>& placings) {
  CKPT_TRY(specs, specs_of(std::move(spec), placings));
  std::vector<Job> ranks;
  for (std::size_t i = 0; i < placings.size(); ++i) {
    CKPT_TRY(job, make(std::move(specs[i]), placings[i].place, placings[i].reason));
    ranks.push_back(std::move(job));
  }
  CKPT_TRY(added, table_.add_all(std::move(ranks)));
  table_.changed().notify();
  return find_whole(table_, added.front()->whole()).value();
}

Result<Job*> JobAdmission::revive(wire::JobSpec spec, const Place& place, const std::string& image,
                                  std::int64_t as_of_ms) {
  CKPT_TRY(job, make(std::move(spec), place, "from " + image));
  job.state = JobState::kParked;
  job.phase = wire::JobPhase::kExited;
  job.incarnation = 0;
  job.spec.incarnation = 0;
  job.segments.front().incarnation = 0;
  job.parked_ms = job.ended_ms = as_of_ms;
  CKPT_TRY(added, table_.add(std::move(job)));
  table_.changed().notify();
  return added;
}

Result<Job*> JobAdmission::admit_instance(wire::JobSpec spec, const Node& node,
                                          const wire::JobInstance& instance) {
  CKPT_TRYV(check_spec_size(spec));
  if (instance.job == 0 || table_.contains(instance.job) || spec.argv.empty() || spec.ranks.size() != 1)
    return Error(ErrorCode::kInvalidArgument, "Node " + node.row.name + " does not report how job " +
                                                  job_text(instance.job) + " was started");
  make_name_free(spec, instance.job);
  Job job;
  job.id = instance.job;
  job.incarnation = reported_incarnation(instance);
  spec.job = job.id;
  spec.incarnation = job.incarnation;
  job.ranks = ranks_of(spec, node, instance);
  job.spec = std::move(spec);
  job.segments.emplace_back(node.row.name, instance.incarnation);
  job.unconfirmed = true;
  job.placed = "found running on " + node.row.name + " by a coordinator whose store had no record of it";
  job.state = instance.phase == wire::JobPhase::kStarting ? JobState::kStarting : JobState::kRunning;
  job.started_ms = instance.started_unix_ms;
  CKPT_TRY(added, table_.add(std::move(job)));
  events_.add("job-taken-in",
              fmt::format("job {} was found on {}: this coordinator's store had no record of it",
                          label(*added), to_text(added->place())),
              node.row.name, added->id);
  job_runner_.on_instance(node, instance);
  return added;
}

void JobAdmission::continue_at(JobId id, const Node& node, const wire::JobInstance& instance,
                               bool known_elsewhere) {
  const Job* job = table_.find(id);
  if (job == nullptr) return;
  wire::JobSpec spec = job->spec;
  make_name_free(spec, id);
  lifecycle::FoundRunning found;
  found.at.k = reported_incarnation(instance);
  found.at.segment = Segment(node.row.name, instance.incarnation);
  found.at.ranks = ranks_of(job->spec, node, instance);
  found.name = std::move(spec.name);
  found.known_elsewhere = known_elsewhere;
  job_runner_.fact(id, std::move(found));
  job_runner_.reevaluate(id, &node);
}

void JobAdmission::make_name_free(wire::JobSpec& spec, JobId id) const {
  const auto is_taken = [&](const std::string& name) { return table_.is_name_taken(name, id); };
  if (!valid_job_name(spec.name)) spec.name.clear();
  if (!spec.name.empty() && !is_taken(spec.name)) return;
  const std::string longer = spec.name + "-" + job_text(id);
  spec.name = valid_job_name(longer) && !is_taken(longer) ? longer : made_up_name(spec, id, is_taken);
}

}  // namespace ckpt::coordinator
