// SPDX-License-Identifier: Apache-2.0
// Lets a gang go on from a set of its images: `resume` and `restore`. All ranks are placed, or none. One record of all
// ranks begins it; then each goes its way as a job of one rank does (operation_runner.h). If one does not start, the
// others rest again in the same images (lifecycle/rank_rules.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound: there is no whole set; kUnavailable: a node with an image, or enough GPUs, are away; kRefused,
// with the reason.
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
  std::vector<std::string> nodes;  // empty: wherever there are GPUs
  std::optional<Image> image;      // of the set; else the newest
  bool accept_loss = false;        // of the work since the set
};

struct GangRestorePlan {
  GangSet set;
  std::vector<Place> places;  // by rank
  std::int64_t lost_ms = 0;   // of work
  std::string obstacle;       // why it is refused as it was requested; empty: it is not
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

  // Changes nothing.
  control::Task<Result<GangRestorePlan>> plan(JobId gang, GangRestoreWish wish);
  // Has begun when it returns, and goes on by itself.
  control::Task<Result<TaskId>> begin(JobId gang, GangRestoreWish wish);

 private:
  [[nodiscard]] Result<Gang> find(JobId gang, const GangRestoreWish& wish) const;
  [[nodiscard]] Result<GangSet> choose_set(const Gang& gang, const GangRestoreWish& wish) const;
  control::Task<Result<void>> check_is_readable(GangSet set, std::vector<Place> places);
  [[nodiscard]] Result<std::vector<Place>> choose_places(const Gang& gang, const GangSet& set,
                                                         const GangRestoreWish& wish) const;
  control::Task<> follow(JobId gang, GangRestorePlan plan, TaskId task);
  control::Task<Result<void>> wait_until_runs(JobId gang);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
