// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/named_job.h"

namespace ckpt::coordinator {
namespace {

WholeJob as_a_job(Job& rank) {
  WholeJob job;
  job.id = rank.id;
  job.name = rank.spec.name;
  job.size = 1;
  job.ranks = {&rank};
  return job;
}

}  // namespace

Result<NamedJob> find_named(JobTable& jobs, std::string_view id_or_name) {
  NamedJob named;
  Job* rank = jobs.find(id_or_name);
  auto whole = find_whole(jobs, id_or_name);
  const bool is_live_rank = rank != nullptr && whole && is_ended(state_of(*whole)) && !is_ended(rank->state);
  if (whole && !is_live_rank) {
    named.whole = whole->id;
    named.job = *std::move(whole);
    return named;
  }
  if (rank == nullptr) return jobs.not_found(id_or_name);
  named.job = as_a_job(*rank);
  named.whole = rank->whole();
  named.rank = rank->rank_number();
  return named;
}

Result<WholeJob> find_named(JobTable& jobs, JobId id) {
  if (auto whole = find_whole(jobs, id)) return *std::move(whole);
  Job* rank = jobs.find(id);
  if (rank == nullptr) return job_was_removed(id);
  return as_a_job(*rank);
}

Result<JobId> whole_of(const NamedJob& named) {
  if (!named.rank) return named.whole;
  return Error(ErrorCode::kNotSupported, named.job.name +
                                             " is a rank, and only the images of all ranks of its job can be "
                                             "taken and restored together: name the job " +
                                             named.job.ranks.front()->whole_name());
}

}  // namespace ckpt::coordinator
