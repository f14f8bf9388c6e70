// SPDX-License-Identifier: Apache-2.0
// The facts that the machine of a job reads and does not own, as of now: nodes and their reports, the open migration,
// the images.
// Threads: one. Ownership: pointers are valid until the tables behind it change. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/model.h"

namespace ckpt::coordinator::lifecycle {

// An instance as its node reported it last.
struct SeenInstance {
  std::string node;
  bool connected = false;
  const wire::JobInstance* instance = nullptr;
};

class JobView {
 public:
  virtual ~JobView() = default;
  [[nodiscard]] virtual bool connected(const std::string& node) const = 0;
  // The instance that the node started as `incarnation`; null: the node has not reported it.
  [[nodiscard]] virtual const wire::JobInstance* instance(const std::string& node, JobId job,
                                                          Incarnation incarnation) const = 0;
  // All instances of the job, those on nodes that are away, too.
  [[nodiscard]] virtual std::vector<SeenInstance> seen(JobId job) const = 0;
  // The migration of the job that is not decided; null: there is none.
  [[nodiscard]] virtual const Migration* open_migration(JobId job) const = 0;
  // Its newest migration is decided, and not all reports have come. A list that the target sent earlier may come
  // behind the source's report.
  [[nodiscard]] virtual bool is_closing(JobId job) const = 0;
  // The image of that name, as its vault lists it.
  [[nodiscard]] virtual std::optional<Image> image(std::string_view name) const = 0;
  // The time after which an operation on images is given up.
  [[nodiscard]] virtual std::int64_t image_timeout_ms() const = 0;
};

// The instance of the last segment; null: its node has not reported it.
[[nodiscard]] const wire::JobInstance* own_instance(const Job& rank, const JobView& view);
// The highest incarnation that anyone knows to have been started of it.
[[nodiscard]] Incarnation highest_known(const Job& rank, const JobView& view);
// True if the node has an instance of the job, up to this incarnation, that is not over.
[[nodiscard]] bool has_instance(const JobView& view, const std::string& node, JobId job, Incarnation up_to);
// True if a node that is connected has one.
[[nodiscard]] bool has_instance_somewhere(const JobView& view, JobId job, Incarnation up_to);
// A node that is not connected, where an instance that was given up may live; empty: there is none.
[[nodiscard]] std::string silent_node(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
