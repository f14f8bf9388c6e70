// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/process_files.h"

#include <spdlog/spdlog.h>

#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/process_image.h"

namespace ckpt::agent {
namespace {

// Counts faults of the processes' identity. Only adopted processes can have such faults.
std::uint32_t count_strange(pid_t root, const wire::JobSpec& spec) {
  std::uint32_t found = host::check_credentials(root, spec.uid, spec.gid) ? 0 : 1;
  const auto processes = host::processes_of(root);
  if (processes && !host::check_sessions(*processes)) ++found;
  return found;
}

}  // namespace

host::FileRules rules_of_transparent(const MigrationContext& context, const Job& job,
                                     const local::Status& status, const host::Criu& criu) {
  host::FileRules rules;
  rules.own_log = job.log_path();
  rules.own = own_namespaces(job);
  rules.names = name_rules(context, job);
  rules.keeper = static_cast<pid_t>(status.keeper_pid);
  rules.driver_files = context.config.driver_files;
  rules.cache_folders = context.config.cache_folders;
  rules.gpu_process = static_cast<pid_t>(status.session_pid);
  rules.no_internet = criu.why_no_internet();
  rules.ends_connections = job.record().spec.connections == wire::Connections::kReset;
  return rules;
}

host::FileRules rules_of_adopted(const MigrationContext& context, const Job& job, const local::Status& status,
                                 const host::Criu& criu) {
  host::FileRules rules;
  rules.names = name_rules(context, job);
  rules.keeper = static_cast<pid_t>(status.keeper_pid);
  rules.driver_processes = context.config.driver_processes;
  rules.driver_files = context.config.driver_files;
  rules.cache_folders = context.config.cache_folders;
  rules.gpu_process = static_cast<pid_t>(status.rank_pid);
  rules.no_internet = criu.why_no_internet();
  rules.ends_connections = job.record().spec.connections == wire::Connections::kReset;
  return rules;
}

Task<Result<host::FileList>> collect_files(MigrationContext& context, pid_t root, host::FileRules rules) {
  const auto collect = [root, &rules] { return host::collect_files(root, rules); };
  auto files = co_await offload(context.images, collect);
  if (files) co_return files;
  co_return Error(ErrorCode::kRefused, "The job's process cannot be moved")
      .caused_by(std::move(files).error());
}

Task<Result<void>> save_handover(MigrationContext& context, pid_t root, const std::string& images,
                                 const host::FileList& listed, const host::FileRules& rules) {
  const auto save = [root, &images, &listed, &rules] { return save_handover(root, images, listed, rules); };
  co_return co_await offload(context.images, save);
}

host::Compared moment_of(const JobOperation& operation) {
  return operation.kind() == JobOperation::Kind::kRestore ? host::Compared::kStored : host::Compared::kNow;
}

Task<Result<host::CheckedFiles>> compare_files(MigrationContext& context, const JobOperation& operation,
                                               wire::Bytes payload) {
  CKPT_CO_TRY(files, wire::decode<host::FileList>(payload));
  const auto check = [&files, &context, &operation] {
    return host::check_files(files, context.config.cache_folders, moment_of(operation));
  };
  auto checked = co_await offload(context.images, check);
  if (checked) co_return checked;
  co_return Error(ErrorCode::kRefused,
                  "Node " + context.config.node + " lacks files or sockets that the job's process has open")
      .caused_by(std::move(checked).error());
}

Task<Result<std::vector<std::string>>> apply_settings(MigrationContext& context, pid_t root,
                                                      const host::TaskSettings& settings) {
  const auto apply = [root, &settings] { return host::apply_settings(root, settings); };
  CKPT_CO_TRY(remarks, co_await offload(context.images, apply));
  for (const std::string& remark : remarks)
    spdlog::warn("moved program differs from its state before the move: process {} remark {}", root, remark);
  co_return remarks;
}

Task<std::optional<std::uint32_t>> count_obstacles(MigrationContext& context, std::shared_ptr<Job> job) {
  const wire::JobSpec& spec = job->record().spec;
  if (spec.mode == MigrationMode::kCooperative) co_return 0;
  const auto criu = co_await find_criu(context);
  const auto keeper = job->keeper();
  if (!criu || !keeper) co_return std::nullopt;
  const auto status = co_await keeper->attach();
  if (!status) co_return std::nullopt;
  const local::Status& known = *status;
  const auto root = static_cast<pid_t>(known.rank_pid);
  const bool adopted = spec.mode == MigrationMode::kAdopted;
  const bool shares_namespace = !adopted && known.session_pid == known.rank_pid;
  const host::FileRules rules = adopted ? rules_of_adopted(context, *job, known, *criu)
                                        : rules_of_transparent(context, *job, known, *criu);
  const auto count = [root, adopted, &rules, &spec]() -> Result<std::uint32_t> {
    CKPT_TRY(found, host::count_obstacles(root, rules));
    return static_cast<std::uint32_t>(found) + (adopted ? count_strange(root, spec) : 0);
  };
  const auto counted = co_await offload(context.images, count);
  if (!counted) co_return std::nullopt;
  co_return *counted + (shares_namespace ? 1 : 0);
}

}  // namespace ckpt::agent
