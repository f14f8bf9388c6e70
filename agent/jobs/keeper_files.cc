// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/keeper_files.h"

#include <nlohmann/json.hpp>

#include "libckpt/base/fd.h"
#include "libckpt/base/program_error.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {
namespace {

void add_variable(nlohmann::json& environment, const std::string& entry) {
  const auto at = entry.find('=');
  if (at == std::string::npos || at == 0) return;
  environment[entry.substr(0, at)] = entry.substr(at + 1);
}

nlohmann::json restore_of(const HostRestore& restore) {
  nlohmann::json out{{"command", restore.command},
                     {"pid_file", restore.pid_file},
                     {"criu_log", restore.criu_log},
                     {"timeout_ms", restore.timeout.count()}};
  if (!restore.lazy_pages.empty())
    out["lazy_pages"] = {{"command", restore.lazy_pages}, {"pid_file", restore.lazy_pages_pid_file}};
  if (!restore.stopped.empty()) out["stopped"] = restore.stopped;
  return out;
}

void add_adopted(nlohmann::json& out, const JobRecord& record, const Config& config,
                 const HostRestore* restore) {
  out["way"] = "adopted";
  if (restore != nullptr) {
    out["init"] = config.init_program;
    out["restore"] = restore_of(*restore);
  } else {
    out["adopt"] = {{"pid", static_cast<std::uint32_t>(record.spec.adopt_pid)},
                    {"start_ticks", record.spec.adopt_start_ticks}};
  }
}

void add_transparent(nlohmann::json& out, const JobRecord& record, const Config& config,
                     const HostRestore* restore) {
  out["way"] = "transparent";
  out["preload"] = config.shim_library;
  out["gpu_memory_quota"] = record.spec.gpu_memory_bytes;
  if (!config.init_program.empty()) out["init"] = config.init_program;
  if (record.spec.has_own_namespaces()) out["namespaces"] = {{"private_tmp", record.spec.private_tmp}};
  if (restore != nullptr) out["restore"] = restore_of(*restore);
}

}  // namespace

std::string keeper_config(const JobRecord& record, const Config& config, const HostRestore* restore) {
  nlohmann::json environment = nlohmann::json::object();
  for (const std::string& entry : record.spec.env) add_variable(environment, entry);
  for (const std::string& entry : config.job_environment) add_variable(environment, entry);
  std::string gpus;
  for (const wire::RankSpec& rank : record.spec.ranks) {
    gpus += (gpus.empty() ? "" : ",") + std::to_string(config.machine_gpu(rank.gpu_index));
  }
  // The inventory numbers GPUs as NVML does, by bus id. The driver must use the same numbers.
  environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  environment["CUDA_VISIBLE_DEVICES"] = gpus;
  std::string driver_files;
  for (const std::string& name : config.driver_files)
    driver_files += (driver_files.empty() ? "" : ",") + name;
  if (!driver_files.empty()) environment["CKPT_DRIVER_FILES"] = driver_files;

  if (record.allowed_differences != 0)
    environment["CKPT_ALLOWED_DIFFERENCES"] = std::to_string(record.allowed_differences);

  nlohmann::json out;
  out["job"] = wire::job_text(record.spec.job);
  out["name"] = record.spec.name;
  out["incarnation"] = record.spec.incarnation;
  out["role"] = record::name_of(record.role);
  out["argv"] = record.spec.argv;
  out["env"] = std::move(environment);
  out["cwd"] = record.spec.cwd;
  out["ranks"] = record.spec.ranks.size();
  out["gang"] = record.spec.gang.has_peers();
  out["uid"] = record.spec.uid;
  out["gid"] = record.spec.gid;
  if (record.spec.mode == MigrationMode::kTransparent) add_transparent(out, record, config, restore);
  if (record.spec.mode == MigrationMode::kAdopted) add_adopted(out, record, config, restore);
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<void> write_keeper_config(const std::string& folder, const JobRecord& record, const Config& config,
                                 const HostRestore* restore) {
  return write_file_durably(folder + "/keeper.json", keeper_config(record, config, restore));
}

std::optional<KeeperStatus> read_keeper_status(const std::string& folder) {
  auto text = read_file(folder + "/status.json", kMaxStatusBytes);
  if (!text) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  KeeperStatus status;
  const auto whole = [&json](const char* field) -> std::optional<int> {
    const auto at = json.find(field);
    if (at == json.end() || !at->is_number_integer()) return std::nullopt;
    const auto value = at->get<std::int64_t>();
    return value < 0 || value > 255 ? std::nullopt : std::optional(static_cast<int>(value));
  };
  const auto exit_code = whole("exit_code");
  const auto signal = whole("signal");
  status.exited = exit_code || signal;
  if (exit_code) status.wait_status = *exit_code << 8;
  if (signal) status.wait_status = *signal;
  if (const auto unknown = json.find("unknown");
      unknown != json.end() && unknown->is_boolean() && unknown->get<bool>()) {
    status.exited = true;
    status.wait_status = kUnknownStatus;
  }
  const auto is_true = [&json](const char* field) {
    const auto at = json.find(field);
    return at != json.end() && at->is_boolean() && at->get<bool>();
  };
  status.ended_by_keeper = is_true("ended_by_keeper");
  status.ran = is_true("ran");
  if (const auto at = json.find("incarnation"); at != json.end() && at->is_number_unsigned())
    status.incarnation = at->get<wire::Incarnation>();
  const auto program = whole("program_status");
  const auto error = json.find("error");
  if (program && is_program_status(*program) && error != json.end() && error->is_string()) {
    status.program_status = *program;
    status.program_error = error->get<std::string>();
  }
  return status;
}

}  // namespace ckpt::agent
