// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/process_image.h"

#include <sys/stat.h>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
std::string folder_prefix(const std::string& home) {
  struct stat facts {};
  ::stat(home.c_str(), &facts);
  return std::to_string(facts.st_dev) + "." + std::to_string(facts.st_ino) + "-";
}

std::string image_folder_name(const MigrationContext& context, const JobOperation& operation,
                              const char* side) {
  return folder_prefix(context.config.home) + wire::job_text(operation.job()) + "." + operation.name() + "-" +
         side;
}

void remove_image_folder(const MigrationContext& context, const JobOperation& operation, const char* side) {
  const auto place = host::find_memory_place();
  if (place) host::remove_memory_folder(place.assume_value(), image_folder_name(context, operation, side));
}

void remove_images_of_source(const MigrationContext& context, wire::JobId job) {
  const auto place = host::find_memory_place();
  if (!place) return;
  const std::string begin = folder_prefix(context.config.home) + wire::job_text(job) + ".";
  host::remove_memory_folders(place.assume_value(), begin,
                              [](const std::string& rest) { return rest.ends_with("-source"); });
}

void remove_unused_images(const Config& config, const std::set<wire::JobId>& live) {
  const auto place = host::find_memory_place();
  if (!place) return;
  std::set<std::string> names;
  for (const wire::JobId job : live) names.insert(wire::job_text(job));
  const auto unused = [&names](const std::string& rest) {
    return rest.ends_with("-target") || (rest.ends_with("-source") && rest.starts_with("j") &&
                                         !names.contains(rest.substr(0, rest.find('.'))));
  };
  host::remove_memory_folders(place.assume_value(), folder_prefix(config.home), unused);
}

Task<> release_image(MigrationContext& context, HostState image) {
  const auto close = [&image] {
    image.file.reset();
    return true;
  };
  co_await offload(context.images, close);
}

Task<Result<host::Criu>> find_criu(MigrationContext& context) {
  auto found = co_await host::Criu::find(context.config.criu, context.config.home);
  if (found) co_return found;
  co_return Error(ErrorCode::kRefused, "This node cannot move a process")
      .caused_by(std::move(found).assume_error());
}

}  // namespace ckpt::agent
