// SPDX-License-Identifier: Apache-2.0
// The plan of a restore or a resume: the image, the GPU, and the work that would be lost. A restore that
// loses work has an obstacle, unless the request accepts the loss. Planning changes nothing. Dry runs and
// real requests use the same plan.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kRefused, kNotFound, kUnavailable: not possible, with the reason; kCorrupt; kInvalidArgument.
#pragma once

#include <optional>
#include <string>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/images/image_finder.h"
#include "coordinator/lifecycle/job_view.h"
#include "coordinator/operations/planner.h"

namespace ckpt::coordinator {

struct RestoreWish {
  std::string verb = "restore";
  std::string reason;
  std::string to = "auto";
  std::optional<Image> image;  // the wanted image; nullopt: the newest
  bool force = false;          // the operator confirms that unreachable instances have ended
  bool accept_loss = false;    // the user accepts the loss of work since the image
  bool only_plan = false;      // a dry run: a place is chosen even if the loss is not accepted
  bool by_user = true;
  PlanHints hints;  // placement hints, including the claims of other jobs
};

struct RestorePlan {
  Image image;
  Place place;
  bool runs = false;              // an instance of the job runs and will be ended
  std::int64_t last_work_ms = 0;  // Unix time of the job's last work in milliseconds
  std::int64_t lost_ms = 0;       // the lost work: from the image's barrier to the last work
  std::string obstacle;           // why the request is refused in its present form; empty: it is not refused
};

// The plan to restore, from `RestoreWish::image`, a job that is no longer known.
struct RevivalPlan {
  wire::JobSpec spec;
  RestorePlan restore;
};

class RestorePlans {
 public:
  struct Dependencies {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    const lifecycle::JobView& view;
    const MigrationTable& migrations;
    const JobStates& states;
    const Planner& planner;
    const ImageCatalog& catalog;
    const ImageFinder& finder;
  };
  explicit RestorePlans(Dependencies deps) : deps_(deps) {}

  // Checks whether the state of the job permits a restore.
  [[nodiscard]] Result<void> may_restore(JobId id, const RestoreWish& wish) const;
  control::Task<Result<RestorePlan>> plan(JobId id, RestoreWish wish);
  // Returns the plan as of now, with a place that was found earlier.
  [[nodiscard]] Result<RestorePlan> plan_at(JobId id, const RestoreWish& wish, const Image& image,
                                            const Place& place) const;
  control::Task<Result<RevivalPlan>> plan_revival(RestoreWish wish);

 private:
  control::Task<Result<Place>> choose_place(Job job, Image image, RestoreWish wish);
  [[nodiscard]] RestorePlan evaluate(const Job& job, const RestoreWish& wish, const Image& image,
                                     const Place& place) const;
  [[nodiscard]] std::int64_t last_work_ms(const Job& job, const RestoreWish& wish) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
