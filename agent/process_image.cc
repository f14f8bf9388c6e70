// SPDX-License-Identifier: Apache-2.0
#include "agent/process_image.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

namespace ckpt::agent {
namespace {

// Beside CRIU's own files.
constexpr const char* kNotesFile = "/gpumigrate.json";
constexpr std::size_t kMostNotesBytes = 16 << 10;

// Other agents of this machine have jobs and migrations of the same numbers, but not the same home.
std::string folder_prefix(const Config& config) {
  struct stat home {};
  ::stat(config.home.c_str(), &home);
  return std::to_string(home.st_dev) + "." + std::to_string(home.st_ino) + "-j";
}

}  // namespace

Result<void> write_image_notes(const std::string& folder, const ImageNotes& notes) {
  const nlohmann::json json = {{"gpu", notes.gpu}, {"log", notes.log}, {"device_bytes", notes.device_bytes}};
  return write_file_durably(folder + kNotesFile, json.dump());
}

Result<ImageNotes> read_image_notes(const std::string& folder) {
  CKPT_TRY(text, read_file(folder + kNotesFile, kMostNotesBytes));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto text_of = [&json](const char* field) -> std::string {
    const auto at = json.is_object() ? json.find(field) : json.end();
    return json.is_object() && at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  ImageNotes notes{text_of("gpu"), text_of("log"), 0};
  if (json.is_object() && json.contains("device_bytes") && json["device_bytes"].is_number_unsigned())
    notes.device_bytes = json["device_bytes"].get<std::uint64_t>();
  const bool good = parse_gpu_uuid(notes.gpu).has_value() && (notes.log.empty() || notes.log.front() == '/');
  if (good) return notes;
  return Error(ErrorCode::kCorrupt, "The image of the process does not say where it comes from");
}

std::string image_folder_name(const MigrationContext& context, const migration::SwitchInfo& info,
                              const char* side) {
  return folder_prefix(context.config) + std::to_string(info.job) + ".m" + std::to_string(info.migration) +
         "-" + side;
}

void remove_image_folder(const MigrationContext& context, const migration::SwitchInfo& info,
                         const char* side) {
  const auto place = host::find_memory_place();
  if (place) host::remove_memory_folder(place.assume_value(), image_folder_name(context, info, side));
}

void remove_images_of_targets(const Config& config) {
  const auto place = host::find_memory_place();
  if (place) host::remove_memory_folders(place.assume_value(), folder_prefix(config), "-target");
}

Task<> release_image(MigrationContext& context, HostState image) {
  const auto close = [&image] {
    image.file.reset();
    return true;
  };
  co_await offload(context.disk, close);
}

Task<Result<host::Criu>> find_criu(MigrationContext& context) {
  auto found = co_await host::Criu::find(context.config.criu, context.config.home);
  if (found) co_return found;
  co_return Error(ErrorCode::kRefused, "This node cannot move a process")
      .caused_by(std::move(found).assume_error());
}

}  // namespace ckpt::agent
