// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/target_check.h"

#include <unistd.h>

#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/modes/process_image.h"

namespace ckpt::agent {

Task<EndpointPayload> describe_endpoint(MigrationContext& context) {
  EndpointPayload facts;
  facts.reads_memory_log = true;
  facts.restores_connections = true;
  facts.starts_programs = true;
  facts.resets_connections = true;
  facts.restores_namespaces = true;
  facts.max_mappings = co_await offload(context.images, [] { return host::max_mappings(); });
  co_return facts;
}

namespace {

// Checks that this agent can start the job with the namespaces that its user wants.
Result<void> check_namespaces(const wire::JobSpec& spec) {
  if (!spec.has_own_namespaces()) return ok();
  if (spec.mode != MigrationMode::kTransparent)
    return Error(ErrorCode::kRefused, "Only a transparent job can have namespaces of its own");
  if (::geteuid() == 0 && spec.uid == 0) return ok();
  return Error(ErrorCode::kRefused,
               "Only a job of root, under an agent of root, can have namespaces of its own: start it with "
               "--namespaces none");
}

}  // namespace

Result<void> check_spec(const GpuPort& gpus, const wire::JobSpec& spec) {
  const auto bad = [](const std::string& what) { return Error(ErrorCode::kInvalidArgument, what); };
  if (spec.job == 0 || spec.incarnation == 0) return bad("A job needs an id and an incarnation");
  if (spec.argv.empty() || spec.argv.front().empty()) return bad("The job has no command");
  if (!spec.cwd.starts_with('/')) return bad("The job's folder must be an absolute path");
  CKPT_TRYV(check_namespaces(spec));
  CKPT_TRY(rank, only_rank(spec.ranks));
  if (auto known = gpus.model_of(rank.gpu_index); !known) return std::move(known).error();
  if (::getuid() != 0 && spec.uid != ::getuid()) {
    return Error(ErrorCode::kRefused, "This agent does not run as root: it starts jobs of its own user only");
  }
  return ok();
}

Task<Result<void>> check_target(MigrationContext& context, wire::CheckTarget request) {
  CKPT_CO_TRYV(check_spec(context.gpus, request.spec));
  const auto operation = JobOperation::checked(request.spec, request.spec.incarnation - 1, true);
  // The standby of a cooperative job opens its own files.
  if (operation.pause_kind() == PauseKind::kCooperative) co_return ok();
  CKPT_CO_TRYV(check_needs(request.needs, co_await describe_endpoint(context)));
  const auto mode = make_target_mode(context, operation);
  CKPT_CO_TRYV(co_await mode->ready(nullptr));
  co_return co_await mode->compare(std::move(request.needs.files));
}

}  // namespace ckpt::agent
