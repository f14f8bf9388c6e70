// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang.h"

namespace ckpt::coordinator {
namespace {

std::vector<const Job*> const_ranks(const Gang& gang) {
  return {gang.ranks.begin(), gang.ranks.end()};
}

}  // namespace

std::optional<Gang> find_gang(JobTable& jobs, JobId id) {
  Gang gang;
  gang.id = id;
  gang.ranks = jobs.ranks_of(id);
  if (gang.ranks.empty()) return std::nullopt;
  const wire::GangSpec& spec = gang.ranks.front()->spec.gang;
  gang.name = spec.name;
  gang.size = spec.ranks;
  return gang;
}

std::optional<Gang> find_gang(JobTable& jobs, std::string_view id_or_name) {
  const auto id = jobs.find_gang(id_or_name);
  return id ? find_gang(jobs, *id) : std::nullopt;
}

Error gang_was_removed(JobId id) {
  return {ErrorCode::kNotFound, "Job " + job_text(id) + " was removed"};
}

const Job* first_failed(const Gang& gang) {
  return lifecycle::first_failed(const_ranks(gang));
}

JobState state_of(const Gang& gang) {
  return lifecycle::state_of(const_ranks(gang));
}

int exit_code_of(const Gang& gang) {
  const Job* failed = first_failed(gang);
  return failed == nullptr ? 0 : failed->exit_code;
}

std::string reason_of(const Gang& gang) {
  return lifecycle::reason_of(const_ranks(gang));
}

}  // namespace ckpt::coordinator
