// SPDX-License-Identifier: Apache-2.0
// Reads the bodies of calls about jobs (docs/api.md). Pure. Errors: kInvalidArgument.
#pragma once

#include "coordinator/gangs/protections.h"
#include "coordinator/operations/moves.h"
#include "coordinator/operations/service.h"
#include "coordinator/requests/http.h"

namespace ckpt::coordinator {

[[nodiscard]] Result<MigrateRequest> read_migrate(const HttpRequest& request, bool& dry_run);
[[nodiscard]] Result<SubmitRequest> read_submit(const HttpRequest& request, bool& dry_run);
[[nodiscard]] Result<AdoptRequest> read_adopt(const HttpRequest& request);
[[nodiscard]] Result<ProtectRequest> read_protect(const HttpRequest& request);
// Reads the destination of a snapshot: a node, or the absolute path of a folder. Returns an empty string for
// the node where the job runs.
[[nodiscard]] Result<std::string> read_destination(const HttpRequest& request);

}  // namespace ckpt::coordinator
