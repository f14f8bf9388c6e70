// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/target_check.h"

#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/modes/process_image.h"

namespace ckpt::agent {

Task<EndpointPayload> describe_endpoint(MigrationContext& context) {
  EndpointPayload facts;
  facts.reads_memory_log = true;
  facts.restores_connections = true;
  facts.starts_programs = true;
  facts.max_mappings = co_await offload(context.images, [] { return host::max_mappings(); });
  co_return facts;
}

Task<Result<void>> check_target(MigrationContext& context, wire::CheckTarget request) {
  if (context.check_spec) {
    CKPT_CO_TRYV(context.check_spec(request.spec));
  }
  const auto operation = JobOperation::checked(request.spec, request.spec.incarnation - 1, true);
  // The standby of a cooperative job finds its files itself.
  if (operation.pause_kind() == PauseKind::kCooperative) co_return ok();
  CKPT_CO_TRYV(check_needs(request.needs, co_await describe_endpoint(context)));
  const auto mode = make_target_mode(context, operation);
  CKPT_CO_TRYV(co_await mode->ready(nullptr));
  co_return co_await mode->compare(std::move(request.needs.files));
}

}  // namespace ckpt::agent
