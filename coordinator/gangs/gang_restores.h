// SPDX-License-Identifier: Apache-2.0
// Continues a gang from a set of its images: `resume` and `restore`. All ranks are placed, or none. One
// record of all ranks begins the operation. Then each rank proceeds like a job of one rank
// (operation_runner.h). If one rank does not start, the others are parked again in the same images
// (lifecycle/rank_rules.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound if there is no whole set; kUnavailable if a node with an image is disconnected or GPUs are
// missing; kRefused, with the reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/gangs/gang_sets.h"
#include "coordinator/images/operations/operation_runner.h"
#include "coordinator/images/operations/restore_plans.h"

namespace ckpt::coordinator {

struct GangRestoreWish {
  std::string verb = "restore";
  std::string reason;
  std::vector<std::string> nodes;  // the permitted nodes; empty: any node with GPUs
  std::optional<Image> image;      // an image of the wanted set; nullopt: the newest set
  bool accept_loss = false;        // the request accepts the loss of the work since the set
};

struct GangRestorePlan {
  GangSet set;
  std::vector<Place> places;  // the targets by rank
  std::int64_t lost_ms = 0;   // the time of work that would be lost, in milliseconds
  std::string obstacle;       // why the request is refused in its present form; empty: it is not refused
};

class GangRestores {
 public:
  struct Dependencies {
    NodeCalls& calls;
    JobTable& jobs;
    const ImageCatalog& catalog;
    const ImageFinder& finder;
    ImageTasks& tasks;
    const Planner& planner;
    const RestorePlans& restores;
    OperationRunner& runner;
    control::asio::any_io_executor executor;
  };
  explicit GangRestores(Dependencies deps) : deps_(std::move(deps)) {}

  // Plans the restore. Changes nothing.
  control::Task<Result<GangRestorePlan>> plan(JobId gang, GangRestoreWish wish);
  // Begins the restore, which then continues in the background.
  control::Task<Result<TaskId>> begin(JobId gang, GangRestoreWish wish);

 private:
  [[nodiscard]] Result<WholeJob> find(JobId gang, const GangRestoreWish& wish) const;
  [[nodiscard]] Result<GangSet> choose_set(const WholeJob& gang, const GangRestoreWish& wish) const;
  control::Task<Result<void>> check_is_readable(GangSet set, std::vector<Place> places);
  [[nodiscard]] Result<std::vector<Place>> choose_places(const WholeJob& gang, const GangSet& set,
                                                         const GangRestoreWish& wish) const;
  control::Task<> follow(JobId gang, GangRestorePlan plan, TaskId task);
  control::Task<Result<void>> wait_until_runs(JobId gang);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
