// SPDX-License-Identifier: Apache-2.0
// An index of jobs by name and by whether they have ended. It keeps the time of a query independent of the
// number of past jobs.
// Threads: one. Ownership: borrows the jobs. Errors: none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class JobIndex {
 public:
  // Adds a new job or updates a changed one. Call remove() before the job's name changes.
  void put(Job& job);
  void remove(const Job& job);

  // Returns the jobs that have not ended, or are about to return from an image.
  [[nodiscard]] const std::map<JobId, Job*>& live() const { return live_; }
  [[nodiscard]] const std::set<JobId>& ended() const { return ended_; }
  // Returns the jobs with an instance that was given up and may still run (Job::unfenced_nodes,
  // Job::unfenced).
  [[nodiscard]] const std::set<JobId>& given_up() const { return given_up_; }
  // Returns the job with that name that has not ended.
  [[nodiscard]] std::optional<JobId> live_named(std::string_view name) const;
  // Returns the ended job with that name; the newest of several.
  [[nodiscard]] std::optional<JobId> ended_named(std::string_view name) const;
  // Returns the jobs that are the gang's ranks. An empty set means that no such gang exists.
  [[nodiscard]] const std::set<JobId>& ranks_of(JobId gang) const;
  [[nodiscard]] const std::map<JobId, std::set<JobId>>& gangs() const { return gangs_; }
  // Returns the newest gang with that name.
  [[nodiscard]] std::optional<JobId> gang_named(std::string_view name) const;

 private:
  void remove_from_gang(const Job& job);
  void remove_ended_name(const Job& job);

  std::map<JobId, Job*> live_;
  std::map<std::string, JobId, std::less<>> live_names_;
  std::set<JobId> ended_;
  std::map<std::string, std::set<JobId>, std::less<>> ended_names_;
  std::set<JobId> given_up_;
  std::map<JobId, std::set<JobId>> gangs_;
  std::map<std::string, std::set<JobId>, std::less<>> gang_names_;
};

}  // namespace ckpt::coordinator
