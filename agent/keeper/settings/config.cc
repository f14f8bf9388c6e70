// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/settings/config.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace ckpt::keeper {
namespace {

using Json = nlohmann::json;

Error bad(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "keeper.json: " + what);
}

// Checks for a string without a NUL character, which would end the text when it becomes a C string.
bool is_text(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') == std::string::npos;
}

Result<std::string> text_of(const Json& document, const char* field) {
  const auto found = document.find(field);
  if (found == document.end() || !is_text(*found) || found->get_ref<const std::string&>().empty()) {
    return bad(std::string("'") + field + "' must be a non-empty string");
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

Result<std::vector<std::string>> words_of(const Json& list, const char* field) {
  if (!list.is_array() || list.empty())
    return bad(std::string("'") + field + "' must be a list with at least the program");
  std::vector<std::string> words;
  for (const Json& word : list) {
    if (!is_text(word)) return bad(std::string("'") + field + "' must contain strings");
    words.push_back(word.get<std::string>());
  }
  return words;
}

Result<void> read_command(const Json& document, Config& config) {
  CKPT_TRY(argv, words_of(document.value("argv", Json()), "argv"));
  config.argv = std::move(argv);
  const Json env = document.value("env", Json::object());
  if (!env.is_object()) return bad("'env' must be an object of strings");
  for (const auto& [key, value] : env.items()) {
    const bool key_ok =
        !key.empty() && key.find('=') == std::string::npos && key.find('\0') == std::string::npos;
    if (!key_ok || !is_text(value))
      return bad("'env' must be an object of strings without '=' in their names");
    config.env.emplace(key, value.get<std::string>());
  }
  return ok();
}

constexpr std::uint64_t kMaxPid = 1u << 30;

Result<std::string> optional_path(const Json& document, const char* field) {
  if (!document.contains(field)) return std::string();
  CKPT_TRY(path, text_of(document, field));
  if (path.front() != '/') return bad(std::string("'") + field + "' must be an absolute path");
  return path;
}

Result<void> read_adopt(const Json& document, Config& config) {
  if (!config.adopted) return ok();
  if (!document.contains("adopt") && config.restore && !config.init.empty()) return ok();
  const Json adopt = document.value("adopt", Json());
  const auto number = [&adopt](const char* field) {
    const auto found = adopt.is_object() ? adopt.find(field) : adopt.end();
    return adopt.is_object() && found != adopt.end() && found->is_number_unsigned()
               ? found->get<std::uint64_t>()
               : 0;
  };
  if (number("pid") <= 1 || number("pid") > kMaxPid || number("start_ticks") == 0)
    return bad("an adopted process needs 'adopt' with 'pid' and 'start_ticks', or 'restore' with 'init'");
  config.adopt = Config::Adopt{static_cast<pid_t>(number("pid")), number("start_ticks")};
  return ok();
}

Result<void> read_lazy_pages(const Json& restore, Config::Restore& out) {
  if (!restore.contains("lazy_pages")) return ok();
  const Json& lazy = restore["lazy_pages"];
  if (!lazy.is_object()) return bad("'lazy_pages' must be an object");
  CKPT_TRY(command, words_of(lazy.value("command", Json()), "command"));
  CKPT_TRY(pid_file, optional_path(lazy, "pid_file"));
  if (pid_file.empty()) return bad("'lazy_pages' needs 'pid_file'");
  out.lazy_pages = std::move(command);
  out.lazy_pages_pid_file = std::move(pid_file);
  return ok();
}

Result<void> read_stopped(const Json& restore, Config::Restore& out) {
  const Json list = restore.value("stopped", Json::array());
  if (!list.is_array()) return bad("'stopped' must be a list of process ids");
  for (const Json& pid : list) {
    if (!pid.is_number_unsigned() || pid.get<std::uint64_t>() > kMaxPid)
      return bad("'stopped' must be a list of process ids");
    out.stopped.push_back(pid.get<pid_t>());
  }
  return ok();
}

Result<void> read_namespaces(const Json& document, Config& config) {
  if (!document.contains("namespaces")) return ok();
  const Json& namespaces = document["namespaces"];
  const Json private_tmp = namespaces.is_object() ? namespaces.value("private_tmp", Json(false)) : Json();
  if (!private_tmp.is_boolean()) return bad("'namespaces' must be an object with 'private_tmp'");
  if (config.init.empty() || config.adopted)
    return bad("'namespaces' is allowed only in a transparent job, and needs 'init'");
  config.namespaces = Config::OwnNamespaces{private_tmp.get<bool>()};
  return ok();
}

Result<void> read_transparent(const Json& document, Config& config) {
  // The key is `way`, and not `mode`. While a new version is installed, agent and keeper are different
  // builds. A keeper that does not find the key would start any job as a cooperative one, also an adopted
  // process.
  const Json mode = document.value("way", Json("cooperative"));
  if (mode != "cooperative" && mode != "transparent" && mode != "adopted")
    return bad("'way' must be cooperative, transparent or adopted");
  config.adopted = mode == "adopted";
  config.mode = mode == "cooperative" ? MigrationMode::kCooperative : MigrationMode::kTransparent;
  CKPT_TRY(preload, optional_path(document, "preload"));
  CKPT_TRY(init, optional_path(document, "init"));
  CKPT_TRY(context_program, optional_path(document, "context_program"));
  if (preload.find_first_of(": ") != std::string::npos)
    return bad("'preload' must not contain ':' or a space: the loader would treat it as several files");
  config.preload = preload;
  config.init = init;
  config.context_program = context_program;
  CKPT_TRYV(read_namespaces(document, config));
  const Json quota = document.value("gpu_memory_quota", Json(0u));
  if (!quota.is_number_unsigned()) return bad("'gpu_memory_quota' must be a number of bytes");
  config.gpu_memory_quota = quota.get<std::uint64_t>();
  if (!document.contains("restore")) return ok();
  const Json& restore = document["restore"];
  if (!restore.is_object()) return bad("'restore' must be an object");
  CKPT_TRY(command, words_of(restore.value("command", Json()), "command"));
  CKPT_TRY(pid_file, optional_path(restore, "pid_file"));
  if (pid_file.empty()) return bad("'restore' needs 'pid_file'");
  if (config.mode != MigrationMode::kTransparent) return bad("'restore' is allowed only in transparent mode");
  const Json timeout = restore.value("timeout_ms", Json(60000u));
  constexpr std::uint64_t kMaxMs = 3'600'000;
  if (!timeout.is_number_unsigned() || timeout.get<std::uint64_t>() > kMaxMs)
    return bad("'timeout_ms' must be a number of milliseconds");
  config.restore = Config::Restore{
      std::move(command), pid_file, std::chrono::milliseconds(timeout.get<std::uint64_t>()), {}, {}, {}};
  CKPT_TRYV(read_stopped(restore, *config.restore));
  return read_lazy_pages(restore, *config.restore);
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
  const Json gang = document.value("gang", Json(false));
  if (!gang.is_boolean()) return bad("'gang' must be true or false");
  config.gang = gang.get<bool>() && config.mode == MigrationMode::kCooperative;
  const Json ranks = document.value("ranks", Json(1));
  if (ranks != Json(1)) return bad("'ranks' must be 1: jobs of several ranks are not supported yet");
  CKPT_TRY(uid, id_of(document, "uid"));
  CKPT_TRY(gid, id_of(document, "gid"));
  config.uid = uid;
  config.gid = gid;
  CKPT_TRYV(read_transparent(document, config));
  CKPT_TRYV(read_adopt(document, config));
  return config;
}

}  // namespace ckpt::keeper
