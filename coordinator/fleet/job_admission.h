// SPDX-License-Identifier: Apache-2.0
// Takes jobs into the job table and names them. Such a job was submitted, is revived from an image, or was
// found on a node by a coordinator whose store does not know it.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument for an invalid spec; kRefused for the name of a live job; those of the store.
#pragma once

#include <string>
#include <vector>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/fleet/whole_job.h"

namespace ckpt::coordinator {

// The GPU of a new rank, and why it was chosen.
struct Placing {
  Place place;
  std::string reason;
};

class JobAdmission {
 public:
  JobAdmission(JobTable& table, JobRunner& job_runner, EventLog& events)
      : table_(table), job_runner_(job_runner), events_(events) {}

  // Creates a job with a rank per placing. All ranks are stored as starting, or none is. `spec.name` names
  // the job; an empty name is replaced by a generated name. Returns kRefused if a live job has the name.
  Result<WholeJob> create(wire::JobSpec spec, const std::vector<Placing>& placings);
  // Revives a removed job from the description in its image. The result is a new job without instances,
  // parked as of `as_of_ms`. Returns kRefused under the same conditions as create().
  Result<Job*> revive(wire::JobSpec spec, const Place& place, const std::string& image,
                      std::int64_t as_of_ms);
  // Adds a job that an agent runs (or has ended) and that this store does not know. `spec` and `instance`
  // describe the job. A name that a live job already has is extended.
  Result<Job*> admit_instance(wire::JobSpec spec, const Node& node, const wire::JobInstance& instance);
  // Continues a job with an instance that this store does not expect. Either the store is an older copy and
  // the job runs as a later incarnation, or the job was recorded as lost and still runs. A name that a live
  // job already has is extended. `known_elsewhere` means that the store has the job on another node.
  void continue_at(JobId id, const Node& node, const wire::JobInstance& instance, bool known_elsewhere);

 private:
  Result<std::vector<wire::JobSpec>> specs_of(wire::JobSpec spec, const std::vector<Placing>& placings) const;
  Result<Job> make(wire::JobSpec spec, const Place& place, std::string placed) const;
  void make_name_free(wire::JobSpec& spec, JobId id) const;

  JobTable& table_;
  JobRunner& job_runner_;
  EventLog& events_;
};

}  // namespace ckpt::coordinator
