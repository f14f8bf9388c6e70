// SPDX-License-Identifier: Apache-2.0
#include "keeper/config.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace ckpt::keeper {
namespace {

using Json = nlohmann::json;

Error bad(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "keeper.json: " + what);
}

// No NUL: it would cut the text when it becomes a C string.
bool is_text(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') == std::string::npos;
}

Result<std::string> text_of(const Json& document, const char* field) {
  const auto found = document.find(field);
  if (found == document.end() || !is_text(*found) || found->get_ref<const std::string&>().empty()) {
    return bad(std::string("'") + field + "' must be a text that is not empty");
  }
  return found->get<std::string>();
}

Result<std::optional<std::uint32_t>> id_of(const Json& document, const char* field) {
  const auto found = document.find(field);
  if (found == document.end() || found->is_null()) return std::optional<std::uint32_t>();
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > 0xfffffffeull) {
    return bad(std::string("'") + field + "' must be a user or group number");
  }
  return std::optional(found->get<std::uint32_t>());
}

Result<void> read_command(const Json& document, Config& config) {
  const Json argv = document.value("argv", Json());
  if (!argv.is_array() || argv.empty()) return bad("'argv' must be a list with at least the program");
  for (const Json& word : argv) {
    if (!is_text(word)) return bad("'argv' must hold texts");
    config.argv.push_back(word.get<std::string>());
  }
  const Json env = document.value("env", Json::object());
  if (!env.is_object()) return bad("'env' must be an object of texts");
  for (const auto& [key, value] : env.items()) {
    const bool key_ok =
        !key.empty() && key.find('=') == std::string::npos && key.find('\0') == std::string::npos;
    if (!key_ok || !is_text(value)) return bad("'env' must be an object of texts without '=' in their names");
    config.env.emplace(key, value.get<std::string>());
  }
  return ok();
}

}  // namespace

const char* role_name(local::Role role) noexcept {
  return role == local::Role::kStandby ? "standby" : "fresh";
}

Result<Config> parse_config(const std::string& json) {
  const Json document = Json::parse(json, nullptr, false);
  if (!document.is_object()) return bad("it is not a JSON object");
  Config config;
  CKPT_TRY(job, text_of(document, "job"));
  if (job.size() >= local::kNameBytes || job.find('/') != std::string::npos)
    return bad("'job' is too long or has a '/'");
  config.job = job;
  if (document.contains("name") && is_text(document["name"]))
    config.name = document["name"].get<std::string>();
  const Json incarnation = document.value("incarnation", Json());
  if (!incarnation.is_number_unsigned()) return bad("'incarnation' must be a number");
  config.incarnation = incarnation.get<std::uint64_t>();
  CKPT_TRY(role, text_of(document, "role"));
  if (role != "fresh" && role != "standby") return bad("'role' must be fresh or standby");
  config.role = role == "standby" ? local::Role::kStandby : local::Role::kFresh;
  CKPT_TRYV(read_command(document, config));
  CKPT_TRY(cwd, text_of(document, "cwd"));
  config.cwd = cwd;
  const Json ranks = document.value("ranks", Json(1));
  if (ranks != Json(1)) return bad("'ranks' must be 1: jobs of several ranks are not supported yet");
  CKPT_TRY(uid, id_of(document, "uid"));
  CKPT_TRY(gid, id_of(document, "gid"));
  config.uid = uid;
  config.gid = gid;
  return config;
}

}  // namespace ckpt::keeper
