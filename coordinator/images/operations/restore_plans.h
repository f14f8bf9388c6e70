// SPDX-License-Identifier: Apache-2.0
// The plan of a restore or a resume: the image, the GPU, and the work that would be lost. A restore that
// loses work has an obstacle unless the request accepts the loss. Changes nothing; dry runs and real requests
// ask the same.
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
  std::optional<Image> image;  // else the newest
  bool force = false;          // the operator states that unreachable instances are dead
  bool accept_loss = false;    // of the work since the image
  bool only_plan = false;      // a dry run: the place counts even where the loss is not accepted
  bool by_user = true;
  bool all_ranks = false;  // of a gang: the others go on, too
  PlanHints hints;         // with the claims of other jobs
};

struct RestorePlan {
  Image image;
  Place place;
  bool runs = false;              // an instance of it is ended
  std::int64_t last_work_ms = 0;  // Unix time
  std::int64_t lost_ms = 0;       // of work: from the image's barrier to the last work
  std::string obstacle;           // why it is refused as it was requested; empty: it is not
};

// The plan to restore a job that is not known any more from `RestoreWish::image`.
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

  // The state of the job allows it.
  [[nodiscard]] Result<void> may_restore(JobId id, const RestoreWish& wish) const;
  control::Task<Result<RestorePlan>> plan(JobId id, RestoreWish wish);
  // The same as of now, with a place that was found before.
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
