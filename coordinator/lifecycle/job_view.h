// SPDX-License-Identifier: Apache-2.0
// The facts that a job's machine reads and does not own, as of now: nodes and their reports, the open
// migration, and the images.
// Threads: one. Ownership: pointers are valid until the underlying tables change. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/model.h"

namespace ckpt::coordinator::lifecycle {

// An instance as its node last reported it.
struct SeenInstance {
  std::string node;
  bool connected = false;
  const wire::JobInstance* instance = nullptr;
};

class JobView {
 public:
  virtual ~JobView() = default;
  [[nodiscard]] virtual bool connected(const std::string& node) const = 0;
  // Returns the instance that the node started as `incarnation`, or null if the node has not reported it.
  [[nodiscard]] virtual const wire::JobInstance* instance(const std::string& node, JobId job,
                                                          Incarnation incarnation) const = 0;
  // Returns all instances of the job, including those on disconnected nodes.
  [[nodiscard]] virtual std::vector<SeenInstance> seen(JobId job) const = 0;
  // Returns the migration of the job that is not decided, or null.
  [[nodiscard]] virtual const Migration* open_migration(JobId job) const = 0;
  // Returns whether the job's newest migration is decided but not all its reports have arrived. A list that
  // the target sent earlier may arrive after the source's report.
  [[nodiscard]] virtual bool is_closing(JobId job) const = 0;
  // Returns the image with that name, as its checkpoint store lists it.
  [[nodiscard]] virtual std::optional<Image> image(std::string_view name) const = 0;
  // Returns the time limit of an operation on images.
  [[nodiscard]] virtual std::int64_t image_timeout_ms() const = 0;
};

// Returns the instance of the last segment, or null if its node has not reported it.
[[nodiscard]] const wire::JobInstance* own_instance(const Job& rank, const JobView& view);
// Returns the highest incarnation of the rank that is known to have been started.
[[nodiscard]] Incarnation highest_known(const Job& rank, const JobView& view);
// Returns whether the node has an instance of the job, up to this incarnation, that is not over.
[[nodiscard]] bool has_instance(const JobView& view, const std::string& node, JobId job, Incarnation up_to);
// Returns whether a connected node has an instance of the job, up to this incarnation, that is not over.
[[nodiscard]] bool has_instance_somewhere(const JobView& view, JobId job, Incarnation up_to);
// Returns a disconnected node where an abandoned instance may run, or an empty string if there is none.
[[nodiscard]] std::string silent_node(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
