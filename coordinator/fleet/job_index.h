// SPDX-License-Identifier: Apache-2.0
// Jobs by name and by whether they have ended. So a query does not cost more the more jobs there once were.
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
  // A job that is new, or has changed. Before a change of its name: remove().
  void put(Job& job);
  void remove(const Job& job);

  // Have not ended, or are about to come back from an image.
  [[nodiscard]] const std::map<JobId, Job*>& live() const { return live_; }
  [[nodiscard]] const std::set<JobId>& ended() const { return ended_; }
  // An instance of each was given up and may live (Job::unfenced_nodes, Job::unfenced).
  [[nodiscard]] const std::set<JobId>& given_up() const { return given_up_; }
  // The job of that name that has not ended.
  [[nodiscard]] std::optional<JobId> live_named(std::string_view name) const;
  // The job of that name that has ended; the newest of several.
  [[nodiscard]] std::optional<JobId> ended_named(std::string_view name) const;
  // The jobs that are its ranks; none: there is no such gang.
  [[nodiscard]] const std::set<JobId>& ranks_of(JobId gang) const;
  [[nodiscard]] const std::map<JobId, std::set<JobId>>& gangs() const { return gangs_; }
  // The newest gang of that name.
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
