// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/image_notes.h"

#include <nlohmann/json.hpp>

#include "agent/gpus/gpu_identity.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

// The name of the description's file, which is next to CRIU's own files.
constexpr const char* kNotesFile = "/gpumigrate.json";
constexpr std::size_t kMaxNotesBytes = 16 << 10;

// Checks whether the path is absolute and has a file name. The path becomes an argument of CRIU's command
// line, without its leading slashes.
bool is_path_of_file(const std::string& path) {
  return path.starts_with('/') && path.find_first_not_of('/') != std::string::npos &&
         path.find('\0') == std::string::npos;
}

}  // namespace

std::string to_text(const ImageNotes& notes) {
  const nlohmann::json json = {{"gpu", notes.gpu},
                               {"log", notes.log},
                               {"device_bytes", notes.device_bytes},
                               {"connections", notes.connections}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<ImageNotes> parse_image_notes(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto text_of = [&json](const char* field) -> std::string {
    const auto at = json.is_object() ? json.find(field) : json.end();
    return json.is_object() && at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  ImageNotes notes{text_of("gpu"), text_of("log"), 0, false};
  if (json.is_object() && json.contains("device_bytes") && json["device_bytes"].is_number_unsigned())
    notes.device_bytes = json["device_bytes"].get<std::uint64_t>();
  if (json.is_object() && json.contains("connections")) notes.connections = json["connections"] == true;
  const bool good =
      parse_gpu_uuid(notes.gpu).has_value() && (notes.log.empty() || is_path_of_file(notes.log));
  if (good) return notes;
  return Error(ErrorCode::kCorrupt, "The image of the process does not name its GPU and log");
}

Result<void> write_image_notes(const std::string& folder, const ImageNotes& notes) {
  return write_file_durably(folder + kNotesFile, to_text(notes));
}

Result<ImageNotes> read_image_notes(const std::string& folder) {
  CKPT_TRY(text, read_file(folder + kNotesFile, kMaxNotesBytes));
  return parse_image_notes(text);
}

}  // namespace ckpt::agent
