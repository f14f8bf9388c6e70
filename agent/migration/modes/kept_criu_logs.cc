// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/kept_criu_logs.h"

#include "agent/host_process/files/kept_logs.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

std::string with_place(std::string text, const std::string& log, const std::string& place) {
  bool is_named = false;
  for (std::size_t at = text.find(log); at != std::string::npos; at = text.find(log, at + place.size())) {
    text.replace(at, log.size(), place);
    is_named = true;
  }
  return is_named ? text : text + " (CRIU's log is kept: " + place + ")";
}

}  // namespace

std::string kept_logs_folder(const Config& config) {
  return config.home + "/criu-logs";
}

Task<Error> save_criu_log(MigrationContext& context, const JobOperation& operation, std::string log,
                          Error error) {
  const std::string folder = kept_logs_folder(context.config);
  const std::string name = wire::job_text(operation.job()) + "-" + operation.name();
  const auto keep = [&folder, &log, &name] { return host::save_log(folder, log, name); };
  const std::optional<std::string> stored = co_await offload(context.images, keep);
  if (!stored) co_return error;
  co_return Error(error.code(), with_place(error.to_string(), log, context.config.node + ":" + *stored));
}

}  // namespace ckpt::agent
