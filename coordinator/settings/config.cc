// SPDX-License-Identifier: Apache-2.0
#include "coordinator/settings/config.h"

#include <spdlog/common.h>
#include <toml++/toml.h>

#include <cstdlib>
#include <filesystem>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/toml_text.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kLargestFile = 64 << 10;
constexpr std::int64_t kShortestTimeMs = 100;
constexpr std::int64_t kLongestTimeMs = std::int64_t{24} * 3600 * 1000;
constexpr std::int64_t kMaxMarginBytes = std::int64_t{1} << 50;

Error bad_key(std::string_view key, const std::string& why) {
  return {ErrorCode::kInvalidArgument, "Key " + std::string(key) + " of the configuration: " + why};
}

Result<void> take(const toml::node& node, std::string_view key, std::string& out) {
  if (!node.is_string()) return bad_key(key, "must be a string");
  out = node.value<std::string>().value();
  return ok();
}
Result<void> take(const toml::node& node, std::string_view key, bool& out) {
  if (!node.is_boolean()) return bad_key(key, "must be true or false");
  out = node.value<bool>().value();
  return ok();
}
Result<void> take(const toml::node& node, std::string_view key, std::int64_t& out) {
  if (!node.is_integer() || node.value<std::int64_t>().value() < 0)
    return bad_key(key, "must be a number, 0 or more");
  out = node.value<std::int64_t>().value();
  return ok();
}

Result<void> take_tls(const toml::node& node, tls::CertFiles& files) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return bad_key("tls", "must be a table");
  for (const auto& [name, value] : *table) {
    const std::string key = "tls." + std::string(name.str());
    std::string* out = name == "ca" ? &files.ca : name == "certificate" ? &files.certificate : &files.key;
    if (out == &files.key && name != "key") return bad_key(key, "is not known");
    CKPT_TRYV(take(value, key, *out));
  }
  if (files.empty()) return bad_key("tls", "needs ca, certificate and key");
  if (auto complete = tls::check_complete(files); !complete)
    return bad_key("tls", complete.assume_error().message());
  return ok();
}

Result<void> take_key(Config& config, std::string_view key, const toml::node& node) {
  if (key == "tls") return take_tls(node, config.tls);
  if (key == "certificate_authority") return take(node, key, config.certificate_authority);
  if (key == "certificate_check_ms") return take(node, key, config.certificate_check_ms);
  if (key == "home") return take(node, key, config.home);
  if (key == "api_address") return take(node, key, config.api_address);
  if (key == "agent_address") return take(node, key, config.agent_address);
  if (key == "metrics_without_token") return take(node, key, config.metrics_without_token);
  if (key == "log_level") return take(node, key, config.log_level);
  if (key == "log_file") return take(node, key, config.log_file);
  if (key == "fence_command") return take(node, key, config.fence_command);
  if (key == "lease_term_ms") return take(node, key, config.lease_term_ms);
  if (key == "switch_timeout_ms") return take(node, key, config.switch_timeout_ms);
  if (key == "agent_idle_timeout_ms") return take(node, key, config.agent_idle_timeout_ms);
  if (key == "image_timeout_ms") return take(node, key, config.image_timeout_ms);
  if (key == "vault_timeout_ms") return take(node, key, config.vault_timeout_ms);
  if (key == "ended_images_max_age_ms") return take(node, key, config.ended_images_max_age_ms);
  if (key == "ended_images_kept") return take(node, key, config.ended_images_kept);
  if (key == "ended_jobs_kept") return take(node, key, config.ended_jobs_kept);
  if (key == "closed_migrations_kept") return take(node, key, config.closed_migrations_kept);
  if (key == "events_kept") return take(node, key, config.events_kept);
  if (key == "findings_kept") return take(node, key, config.findings_kept);
  if (key == "ended_evacuations_kept") return take(node, key, config.ended_evacuations_kept);
  if (key == "ended_drains_kept") return take(node, key, config.ended_drains_kept);
  if (key == "history_kept_days") return take(node, key, config.history_kept_days);
  if (key == "placement_margin_bytes") return take(node, key, config.placement_margin_bytes);
  if (key == "evacuation_live_deadline_ms") return take(node, key, config.evacuation_live_deadline_ms);
  if (key == "evacuation_parallel") return take(node, key, config.evacuation_parallel);
  if (key == "evacuation_breaker_count") return take(node, key, config.evacuation_breaker_count);
  if (key == "evacuation_breaker_window_ms") return take(node, key, config.evacuation_breaker_window_ms);
  if (key == "evacuation_attempts_per_job") return take(node, key, config.evacuation_attempts_per_job);
  return bad_key(key, "is not known");
}

std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) return std::string(home) + path.substr(1);
  return path;
}

Result<void> check_time(std::string_view key, std::int64_t milliseconds) {
  if (milliseconds >= kShortestTimeMs && milliseconds <= kLongestTimeMs) return ok();
  return bad_key(key,
                 "must be from " + std::to_string(kShortestTimeMs) + " to " + std::to_string(kLongestTimeMs));
}

Result<void> check_count(std::string_view key, std::int64_t count) {
  constexpr std::int64_t kMaxCount = 10'000;
  if (count >= 1 && count <= kMaxCount) return ok();
  return bad_key(key, "must be from 1 to " + std::to_string(kMaxCount));
}

Result<void> check_kept(std::string_view key, std::int64_t count) {
  constexpr std::int64_t kMaxKept = 1'000'000;
  if (count <= kMaxKept) return ok();
  return bad_key(key, "must be at most " + std::to_string(kMaxKept));
}

// Also bounded above: they become nanoseconds, and are added to other sizes.
Result<void> check(const Config& config) {
  if (!config.certificate_authority.empty() &&
      (config.tls.empty() || !config.certificate_authority.starts_with('/')))
    return bad_key("certificate_authority", "must be an absolute path, and needs [tls]");
  CKPT_TRYV(check_time("certificate_check_ms", config.certificate_check_ms));
  CKPT_TRYV(check_time("lease_term_ms", config.lease_term_ms));
  CKPT_TRYV(check_time("switch_timeout_ms", config.switch_timeout_ms));
  CKPT_TRYV(check_time("agent_idle_timeout_ms", config.agent_idle_timeout_ms));
  CKPT_TRYV(check_time("image_timeout_ms", config.image_timeout_ms));
  CKPT_TRYV(check_time("vault_timeout_ms", config.vault_timeout_ms));
  CKPT_TRYV(check_time("evacuation_live_deadline_ms", config.evacuation_live_deadline_ms));
  CKPT_TRYV(check_time("evacuation_breaker_window_ms", config.evacuation_breaker_window_ms));
  CKPT_TRYV(check_count("evacuation_parallel", config.evacuation_parallel));
  CKPT_TRYV(check_count("evacuation_breaker_count", config.evacuation_breaker_count));
  CKPT_TRYV(check_count("evacuation_attempts_per_job", config.evacuation_attempts_per_job));
  CKPT_TRYV(check_kept("ended_jobs_kept", config.ended_jobs_kept));
  CKPT_TRYV(check_kept("closed_migrations_kept", config.closed_migrations_kept));
  CKPT_TRYV(check_kept("events_kept", config.events_kept));
  CKPT_TRYV(check_kept("findings_kept", config.findings_kept));
  CKPT_TRYV(check_kept("ended_evacuations_kept", config.ended_evacuations_kept));
  CKPT_TRYV(check_kept("ended_drains_kept", config.ended_drains_kept));
  CKPT_TRYV(check_kept("history_kept_days", config.history_kept_days));
  constexpr std::int64_t kMaxEndedImages = 1'000'000;
  if (config.ended_images_kept > kMaxEndedImages)
    return bad_key("ended_images_kept", "must be at most " + std::to_string(kMaxEndedImages));
  constexpr std::int64_t kMaxImageAgeMs = std::int64_t{10} * 365 * 24 * 3600 * 1000;
  if (config.ended_images_max_age_ms < kShortestTimeMs || config.ended_images_max_age_ms > kMaxImageAgeMs)
    return bad_key("ended_images_max_age_ms", "must be from " + std::to_string(kShortestTimeMs) + " to " +
                                                  std::to_string(kMaxImageAgeMs));
  if (config.placement_margin_bytes > kMaxMarginBytes)
    return bad_key("placement_margin_bytes", "must be at most " + std::to_string(kMaxMarginBytes));
  if (config.log_level != "off" && spdlog::level::from_str(config.log_level) == spdlog::level::off)
    return bad_key("log_level", "must be one of trace, debug, info, warn, error, off");
  return ok();
}

}  // namespace

std::string default_home() {
  if (const char* home = std::getenv("GPUMIGRATE_HOME"); home != nullptr && *home != '\0') return home;
  return expand_home("~/.local/share/gpumigrate");
}

Result<Config> parse_config(const std::string& text, const std::string& source) {
  Config config;
  CKPT_TRYV(control::check_toml_text(text, source));
  try {
    const toml::table table = toml::parse(text, source);
    for (const auto& [key, node] : table) {
      CKPT_TRYV(take_key(config, key.str(), node));
    }
  } catch (const toml::parse_error& e) {
    return Error(ErrorCode::kInvalidArgument, source + " is not TOML: " + std::string(e.description()) +
                                                  " in line " + std::to_string(e.source().begin.line));
  }
  CKPT_TRYV(check(config));
  return config;
}

Result<Config> load_config(const std::string& config_path, const std::string& home) {
  Config config;
  if (!config_path.empty()) {
    CKPT_TRY(text, read_file(config_path, kLargestFile));
    CKPT_TRY(read, parse_config(text, config_path));
    config = std::move(read);
  }
  if (!home.empty()) config.home = home;
  if (config.home.empty()) config.home = default_home();
  std::error_code code;
  config.home = std::filesystem::absolute(expand_home(config.home), code).string();
  if (code) return Error(ErrorCode::kInvalidArgument, "Folder " + config.home + ": " + code.message());
  return config;
}

}  // namespace ckpt::coordinator
