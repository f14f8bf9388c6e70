// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/model.h"

#include <algorithm>
#include <cctype>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kLongestName = 63;

}  // namespace

std::string to_text(const Place& place) {
  return place.node + ":" + std::to_string(place.gpu);
}

std::string_view state_text(const Migration& migration) noexcept {
  const bool asked = migration.forgotten && migration.phase < MigrationPhase::kGranted;
  return asked ? "forgotten" : to_string(migration.phase);
}

int exit_code_of(MigrationResult result) noexcept {
  switch (result) {
    case MigrationResult::kNone:
      return 6;
    case MigrationResult::kDone:
      return 0;
    case MigrationResult::kFailed:
      return 1;
    case MigrationResult::kTimedOut:
      return 2;
    case MigrationResult::kInterrupted:
      return 2;
    case MigrationResult::kRestored:
      return 3;
    case MigrationResult::kLost:
      return 4;
    case MigrationResult::kRefused:
      return 5;
  }
  return 6;
}

std::string Job::why_not_alone() const {
  if (spec.gang.id == 0) return {};
  return "it is a rank of " + spec.gang.name + ", which is moved with `migrate " + spec.gang.name +
         " --rank " + std::to_string(rank_number()) + "`";
}

std::string Job::why_not_by_itself() const {
  if (!unconfirmed) return {};
  return "it is known only from the report of node " + node() + ": only `gpumigrate migrate " + spec.name +
         "` can move the job before `gpumigrate cluster confirm " + spec.name + "`";
}

std::uint64_t Job::state_bytes() const {
  std::uint64_t sum = 0;
  for (const JobRank& rank : ranks) sum += rank.state_bytes;
  return sum;
}

std::uint64_t Job::held_bytes() const {
  return std::max(state_bytes(), memory.now());
}

std::uint64_t Job::expected_bytes() const {
  return std::max(held_bytes(), spec.gpu_memory_bytes != 0 ? spec.gpu_memory_bytes : memory.peak());
}

std::string job_text(JobId id) {
  return wire::job_text(id);
}
std::string migration_text(MigrationId id) {
  return wire::migration_text(id);
}
std::optional<JobId> parse_job_id(std::string_view text) {
  return wire::parse_id('j', text);
}
std::optional<MigrationId> parse_migration_id(std::string_view text) {
  return wire::parse_id('m', text);
}

std::string label(const Job& job) {
  return job.spec.name + " (" + job_text(job.id) + ")";
}
std::string label(const Migration& m) {
  return migration_text(m.id) + " of " + m.job_name;
}

bool valid_job_name(std::string_view name) {
  const auto alphanumeric = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && name.size() <= kLongestName && alphanumeric(name.front()) && !parse_job_id(name) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace ckpt::coordinator
