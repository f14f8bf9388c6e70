// SPDX-License-Identifier: Apache-2.0
#include "coordinator/settings/config.h"

#include <cstdlib>
#include <filesystem>

#include "coordinator/settings/settings_list.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/settings/table.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kLargestFile = 64 << 10;
constexpr std::int64_t kShortestTimeMs = 100;
constexpr std::int64_t kDayMs = std::int64_t{24} * 3600 * 1000;
constexpr std::int64_t kMaxMarginBytes = std::int64_t{1} << 50;

using settings::Allowed;
using settings::Setting;

// Values also have an upper limit, because they are converted to nanoseconds and added to other values.
constexpr Allowed kTime{.least = kShortestTimeMs, .most = kDayMs};
constexpr Allowed kAge{.least = kShortestTimeMs, .most = 3650 * kDayMs};
constexpr Allowed kCount{.least = 1, .most = 10'000};
constexpr Allowed kKept{.most = 1'000'000};
constexpr Allowed kRequired{.required = true};

using Settings = std::vector<Setting>;

void add_daemon(Settings& to, Config& c) {
  to.insert(to.end(),
            {{"home", &c.home,
              "The cluster's folder; the coordinator's files are in its `coordinator`. Empty: "
              "`GPUMIGRATE_HOME`, or "
              "`~/.local/share/gpumigrate`."},
             {"api_address", &c.api_address,
              "Where the command on other machines reaches the coordinator, like `10.0.0.1:7060`; needs "
              "`[tls]`. Empty: "
              "`api.sock` in its folder alone."},
             {"agent_address", &c.agent_address,
              "Where agents dial, like `10.0.0.1:7070`, with `[tls]`, or `unix:/path`. Empty: `agents.sock` "
              "in its folder."},
             {"metrics_without_token", &c.metrics_without_token,
              "`true`: `/metrics` asks no client for a token ([metrics](../metrics.md))."},
             {"log_level",
              &c.log_level,
              "The least severe lines that are logged.",
              {.words = {"trace", "debug", "info", "warn", "error", "off"}}},
             {"log_file", &c.log_file, "Where the log goes. Empty: standard error."},
             {"fence_command", &c.fence_command,
              "Run with a lost node's name by `node rm --force`; 0 proves that nothing runs there any more "
              "(120 s). Empty: "
              "`--fenced` is the operator's word alone."},
             {"tls.ca", &c.tls.ca,
              "The cluster's authority, a PEM file, an absolute path. With `[tls]` all TCP is TLS, both "
              "sides verified "
              "([operations](../operations.md#certificates)).",
              kRequired},
             {"tls.certificate", &c.tls.certificate, "The coordinator's certificate, likewise.", kRequired},
             {"tls.key", &c.tls.key, "Its key, likewise; mode 0600 or 0400.", kRequired},
             {"certificate_authority", &c.certificate_authority,
              "A folder with `ca.pem` and `ca.key`, an absolute path: nodes join by tokens, and certificates "
              "are renewed. "
              "Empty: neither."},
             {"certificate_check_ms", &c.certificate_check_ms,
              "How often the ends of certificates are looked at.", kTime}});
}

void add_moves(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"lease_term_ms", &c.lease_term_ms, "How long a node may decide about a switch by itself.", kTime},
       {"switch_timeout_ms", &c.switch_timeout_ms, "How long a switch waits for a node's answer.", kTime},
       {"agent_idle_timeout_ms", &c.agent_idle_timeout_ms,
        "An agent that is silent for so long is unreachable.", kTime},
       {"placement_margin_bytes",
        &c.placement_margin_bytes,
        "Kept free beside a job's state at a target.",
        {.most = kMaxMarginBytes}},
       {"evacuation_live_deadline_ms", &c.evacuation_live_deadline_ms,
        "How long an urgent evacuation may move live; then the image is used.", kTime},
       {"evacuation_parallel", &c.evacuation_parallel, "Urgent evacuations at a time.", kCount},
       {"evacuation_breaker_count", &c.evacuation_breaker_count,
        "So many evacuations within the window stop automatic moves.", kCount},
       {"evacuation_breaker_window_ms", &c.evacuation_breaker_window_ms, "The window of that count.", kTime},
       {"evacuation_attempts_per_job", &c.evacuation_attempts_per_job, "Attempts for one job within an hour.",
        kCount},
       {"image_timeout_ms", &c.image_timeout_ms,
        "A suspend, restore or resume that is not done by then is given up; a suspended job runs on.", kTime},
       {"vault_timeout_ms", &c.vault_timeout_ms,
        "How long a suspend waits for the node of its checkpoint store that does not answer.", kTime}});
}

void add_history(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"ended_images_max_age_ms", &c.ended_images_max_age_ms,
        "Images go so long after their job's end (event `images-collected`).", kAge},
       {"ended_images_kept", &c.ended_images_kept,
        "More images of ended jobs go: those of the job that ended first.", kKept},
       {"ended_jobs_kept", &c.ended_jobs_kept,
        "Ended jobs beyond this number are forgotten; their images are not.", kKept},
       {"closed_migrations_kept", &c.closed_migrations_kept, "Likewise of migrations.", kKept},
       {"events_kept", &c.events_kept, "Likewise of events.", kKept},
       {"findings_kept", &c.findings_kept, "Likewise of agents' findings about GPUs.", kKept},
       {"ended_evacuations_kept", &c.ended_evacuations_kept, "Likewise of evacuations.", kKept},
       {"ended_drains_kept", &c.ended_drains_kept, "Likewise of drains.", kKept},
       {"kept_output_mib", &c.kept_output_mib,
        "Copies of the ends of jobs' logs (1 MiB of each instance), for `logs` once a node is away; 0: none.",
        kKept},
       {"output_copy_interval_ms", &c.output_copy_interval_ms,
        "How often the end of the log of a job that writes is copied.", kTime},
       {"history_kept_days", &c.history_kept_days,
        "All these are forgotten after so many days, too; 0: the numbers alone count.", kKept}});
}

std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) return std::string(home) + path.substr(1);
  return path;
}

Result<void> check(const Config& config, const std::string& source) {
  if (!config.certificate_authority.empty() &&
      (config.tls.empty() || !config.certificate_authority.starts_with('/')))
    return settings::bad(source, "\"certificate_authority\" must be an absolute path, and needs [tls]");
  if (auto complete = tls::check_complete(config.tls); !complete)
    return settings::bad(source, "[tls]: " + complete.error().message());
  return ok();
}

}  // namespace

std::string default_home() {
  if (const char* home = std::getenv("GPUMIGRATE_HOME"); home != nullptr && *home != '\0') return home;
  return expand_home("~/.local/share/gpumigrate");
}

std::vector<settings::Setting> settings_of(Config& config) {
  Settings all;
  add_daemon(all, config);
  add_moves(all, config);
  add_history(all, config);
  return all;
}

std::string settings_page() {
  Config defaults;
  return settings::describe(settings_of(defaults));
}

Result<Config> parse_config(const std::string& text, const std::string& source) {
  CKPT_TRY(table, settings::parse(text, source));
  Config config;
  CKPT_TRYV(settings::read(table, source, settings_of(config)));
  CKPT_TRYV(check(config, source));
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
