// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/whole_job.h"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::coordinator {
namespace {

std::vector<const Job*> const_ranks(const WholeJob& job) {
  return {job.ranks.begin(), job.ranks.end()};
}

}  // namespace

std::optional<WholeJob> find_whole(JobTable& jobs, JobId id) {
  WholeJob whole;
  whole.id = id;
  whole.ranks = jobs.ranks_of(id);
  if (whole.ranks.empty()) return std::nullopt;
  const Job& first = *whole.ranks.front();
  whole.name = first.whole_name();
  whole.size = std::max<std::size_t>(1, first.spec.gang.ranks);
  return whole;
}

std::optional<WholeJob> find_whole(JobTable& jobs, std::string_view id_or_name) {
  const auto id = jobs.find_whole(id_or_name);
  return id ? find_whole(jobs, *id) : std::nullopt;
}

Error job_was_removed(JobId id) {
  return {ErrorCode::kNotFound, "Job " + job_text(id) + " was removed"};
}

Result<Job*> find_rank(const WholeJob& job, std::uint32_t number) {
  const auto has_number = [number](const Job* rank) { return rank->rank_number() == number; };
  const auto rank = std::ranges::find_if(job.ranks, has_number);
  if (rank == job.ranks.end())
    return Error(ErrorCode::kNotFound, fmt::format("Job {} has no rank {}", job.name, number));
  return *rank;
}

const Job* first_failed(const WholeJob& job) {
  return lifecycle::first_failed(const_ranks(job));
}

JobState state_of(const WholeJob& job) {
  return lifecycle::state_of(const_ranks(job));
}

int exit_code_of(const WholeJob& job) {
  const Job* failed = first_failed(job);
  return failed == nullptr ? 0 : failed->exit_code;
}

std::string reason_of(const WholeJob& job) {
  const JobState state = state_of(job);
  const Job& first = *job.ranks.front();
  if (is_ended(state) && first.id == job.id) return first.reason;
  if (first_failed(job) != nullptr) return lifecycle::reason_of(const_ranks(job));
  if (state != JobState::kParked) return {};
  const auto is_parked = [](const Job* rank) { return rank->state == JobState::kParked; };
  return (*std::ranges::find_if(job.ranks, is_parked))->reason;
}

}  // namespace ckpt::coordinator
