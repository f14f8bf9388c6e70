// SPDX-License-Identifier: Apache-2.0
// Images, protection and tasks as the API shows them (libckpt/api). Pure except for the clock, which is read
// for an image's age.
#pragma once

#include "coordinator/gangs/job_images.h"
#include "coordinator/gangs/protections.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_tasks.h"
#include "libckpt/api/image.h"

namespace ckpt::coordinator {

// Returns the API view of an image. `job` is null if the job is no longer known. `readable` means that a
// connected node can read the image.
[[nodiscard]] api::Image image_view(const ListedImage& listed, const Job* job, bool readable);
[[nodiscard]] api::ImageTask task_view(const ImageTask& task);
[[nodiscard]] api::Protected protected_view(JobId id, const Protected& done, bool dry_run);
// Returns the API view of a restore plan. The caller adds the verb and the job.
[[nodiscard]] api::RestorePlan restore_plan_view(const JobRestorePlan& plan);

}  // namespace ckpt::coordinator
