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
  // Returns the jobs with an abandoned instance that may still run (Job::unfenced_nodes, Job::unfenced).
  [[nodiscard]] const std::set<JobId>& given_up() const { return given_up_; }
  // Returns the job with that name that has not ended.
  [[nodiscard]] std::optional<JobId> live_named(std::string_view name) const;
  // Returns the ended job with that name. If several ended jobs have the name, returns the newest.
  [[nodiscard]] std::optional<JobId> ended_named(std::string_view name) const;
  // Returns the ranks of the whole job (Job::whole()). An empty set means that no such job exists.
  [[nodiscard]] const std::set<JobId>& ranks_of(JobId whole) const;
  [[nodiscard]] const std::map<JobId, std::set<JobId>>& wholes() const { return wholes_; }
  // Returns the whole jobs with that name, the newest at the end.
  [[nodiscard]] const std::set<JobId>& wholes_named(std::string_view name) const;

 private:
  void remove_from_whole(const Job& job);
  void remove_ended_name(const Job& job);

  std::map<JobId, Job*> live_;
  std::map<std::string, JobId, std::less<>> live_names_;
  std::set<JobId> ended_;
  std::map<std::string, std::set<JobId>, std::less<>> ended_names_;
  std::set<JobId> given_up_;
  std::map<JobId, std::set<JobId>> wholes_;
  std::map<std::string, std::set<JobId>, std::less<>> whole_names_;
};

}  // namespace ckpt::coordinator
