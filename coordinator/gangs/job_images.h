// SPDX-License-Identifier: Apache-2.0
// Takes images of a job of any number of ranks, and continues the job from them. A job of one rank has single
// images (Snapshots, ImageRequests). The ranks of other jobs have sets of images (GangImages, GangRestores).
// Users of this class need not distinguish the two. `whole` is the id of the whole job (Job::whole()).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of these classes; kNotSupported for a wish that the job's images do not permit, and for the id of a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/gangs/gang_images.h"
#include "coordinator/gangs/gang_restores.h"
#include "coordinator/images/operations/image_requests.h"
#include "coordinator/images/snapshots.h"

namespace ckpt::coordinator {

struct JobRestoreWish {
  std::string verb = "restore";  // the verb of the request: "restore" or "resume"
  std::string reason;
  std::string to = "auto";     // "auto", NODE or NODE:GPU; the nodes of several ranks are separated by commas
  std::optional<Image> image;  // an image of the wanted step; nullopt: the newest
  bool force = false;          // the operator confirms that unreachable instances have ended
  bool accept_loss = false;    // the user accepts the loss of work since the images
};

struct JobRestorePlan {
  std::vector<Image> images;    // the images to restore, by rank
  std::vector<Place> places;    // the targets, by rank
  std::string to;               // the targets as text
  std::int64_t barrier_ms = 0;  // the barrier time of the earliest image, in Unix milliseconds
  bool runs = false;            // an instance of the job runs and will be ended
  std::int64_t lost_ms = 0;     // the time of work that would be lost, in milliseconds
  std::string obstacle;         // why the request is refused in its present form; empty: it is not refused
};

[[nodiscard]] JobRestorePlan job_restore_plan(const RestorePlan& plan);
[[nodiscard]] JobRestorePlan job_restore_plan(const GangRestorePlan& plan);

class JobImages : public Images {
 public:
  struct Dependencies {
    JobTable& jobs;
    Snapshots& snapshots;
    ImageRequests& requests;
    GangImages& gang_images;
    GangRestores& gang_restores;
  };
  explicit JobImages(Dependencies deps) : deps_(deps) {}

  // Returns the whole job with the id `whole`.
  [[nodiscard]] Result<WholeJob> find(JobId whole) const;

  // Each of these functions begins an operation, which then continues in the background. `to` is NODE or a
  // folder; empty: the place of the job's other images.
  control::Task<Result<TaskId>> begin_snapshot(JobId whole, std::string to);
  control::Task<Result<TaskId>> begin_suspend(JobId whole, std::string to);
  control::Task<Result<TaskId>> begin_restore(JobId whole, JobRestoreWish wish);
  // Returns the plan that begin_restore() would carry out. Changes nothing.
  control::Task<Result<JobRestorePlan>> dry_restore(JobId whole, JobRestoreWish wish);

  // Takes images of all ranks. Returns once they are durable and recorded in the ranks.
  control::Task<Result<void>> capture(JobId whole, Destination to);
  // Returns why no images of the job can be taken now, or an empty string if they can be taken.
  [[nodiscard]] std::string why_none(const WholeJob& job) const;
  // Returns why no images of the job can ever be taken, as far as known. An empty string means that images
  // may be possible at some time.
  [[nodiscard]] std::string why_never(const WholeJob& job) const;

  // The interface for other parts of the coordinator, which name a rank. A rank is restored or parked only
  // together with all other ranks of its job. Therefore these functions return kRefused if the job has other
  // ranks.
  [[nodiscard]] std::optional<Image> newest(JobId rank) const override;
  control::Task<Result<Restored>> restore(JobId rank, std::optional<Place> to, std::string reason) override;
  [[nodiscard]] bool may_park(JobId rank) const override { return check_is_alone(rank).has_value(); }
  control::Task<Result<void>> park(JobId rank, bool snapshot, std::string reason) override;

 private:
  [[nodiscard]] Result<WholeJob> find_for(JobId whole, const JobRestoreWish& wish) const;
  [[nodiscard]] Result<void> check_is_alone(JobId rank) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
