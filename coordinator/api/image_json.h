// SPDX-License-Identifier: Apache-2.0
// Images, protection and tasks as the API shows them (docs/api.md). Pure but for the clock.
#pragma once

#include "coordinator/api/api_json.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/images/operations/restore_plans.h"
#include "coordinator/images/protections.h"
#include "coordinator/requests/http.h"

namespace ckpt::coordinator {

// The body of `protect`, and its answer.
[[nodiscard]] Result<ProtectRequest> protect_request_of(const HttpRequest& request);
[[nodiscard]] json protected_json(JobId id, const Protected& done, const ProtectRequest& wish);
// Of a snapshot: a node, or the absolute path of a folder.
[[nodiscard]] Result<void> check_destination(const std::string& to);
[[nodiscard]] json image_json(const ListedImage& listed, const Job* job, bool readable);
[[nodiscard]] json task_json(const ImageTask& task);
// A dry run of a restore or a resume.
[[nodiscard]] json restore_plan_json(const RestorePlan& plan);

}  // namespace ckpt::coordinator
