// SPDX-License-Identifier: Apache-2.0
// Takes jobs into the job table, and gives them their names. A job was submitted, is revived from an image,
// or was found on a node by a coordinator whose store does not know it.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument for a spec that no job has, kRefused for a name that a live job has; those of the store.
#pragma once

#include <string>

#include "coordinator/fleet/job_runner.h"

namespace ckpt::coordinator {

class JobAdmission {
 public:
  JobAdmission(JobTable& table, JobRunner& job_runner, EventLog& events)
      : table_(table), job_runner_(job_runner), events_(events) {}

  // A new job on `place`, stored as starting. An empty name is made up. kRefused if a live job has the name.
  Result<Job*> create(wire::JobSpec spec, const Place& place, std::string placed);
  // The ranks of a new gang, each on its place: all are stored as starting, or none is. `gang` names it; an empty
  // name is made up. kRefused if a live job has the name.
  Result<std::vector<Job*>> create_gang(wire::JobSpec spec, const std::vector<Place>& places,
                                        const std::string& placed);
  // A job that was forgotten, as its image describes it: a new one, parked as of then, without instances.
  // kRefused as create().
  Result<Job*> revive(wire::JobSpec spec, const Place& place, const std::string& image,
                      std::int64_t as_of_ms);
  // A job that an agent runs (or has ended) and this store does not know: as `spec` and `instance` describe
  // it. A name that a live job has is made longer.
  Result<Job*> take_in(wire::JobSpec spec, const Node& node, const wire::JobInstance& instance);
  // The store is an older copy: the job runs as a later incarnation than is known here. Or it was given up,
  // and runs all the same. A name that a live job has is made longer.
  // `known_elsewhere`: another node was known to have it.
  void continue_at(JobId id, const Node& node, const wire::JobInstance& instance, bool known_elsewhere);

 private:
  Result<Job> make(wire::JobSpec spec, const Place& place, std::string placed) const;
  void make_name_free(wire::JobSpec& spec, JobId id) const;

  JobTable& table_;
  JobRunner& job_runner_;
  EventLog& events_;
};

}  // namespace ckpt::coordinator
