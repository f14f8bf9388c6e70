// SPDX-License-Identifier: Apache-2.0
// Images, protection and tasks as the API shows them (libckpt/api). Pure but for the clock, for an image's age.
#pragma once

#include "coordinator/gangs/gang_restores.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/images/operations/restore_plans.h"
#include "coordinator/images/protections.h"
#include "libckpt/api/image.h"

namespace ckpt::coordinator {

// `job`: null where it is not known any more. `readable`: by a node that is connected.
[[nodiscard]] api::Image image_view(const ListedImage& listed, const Job* job, bool readable);
[[nodiscard]] api::ImageTask task_view(const ImageTask& task);
[[nodiscard]] api::Protected protected_view(JobId id, const Protected& done, bool dry_run);
// The caller adds the verb and the job.
[[nodiscard]] api::RestorePlan restore_plan_view(const RestorePlan& plan);
[[nodiscard]] api::RestorePlan restore_plan_view(const GangRestorePlan& plan);

}  // namespace ckpt::coordinator
