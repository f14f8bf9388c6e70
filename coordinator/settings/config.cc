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
constexpr Allowed kTime{.min = kShortestTimeMs, .max = kDayMs};
constexpr Allowed kAge{.min = kShortestTimeMs, .max = 3650 * kDayMs};
constexpr Allowed kCount{.min = 1, .max = 10'000};
constexpr Allowed kKept{.max = 1'000'000};
constexpr Allowed kRequired{.required = true};

using Settings = std::vector<Setting>;

void add_daemon(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"home", &c.home,
        "The cluster's folder; the coordinator's files are in its folder `coordinator`. Empty: "
        "`GPUMIGRATE_HOME`, or `~/.local/share/gpumigrate`."},
       {"api_address", &c.api_address,
        "Address of the API for commands on other machines, like `10.0.0.1:7060`; needs `[tls]`. Empty: only "
        "`api.sock` in the coordinator's folder."},
       {"agent_address", &c.agent_address,
        "Address to which agents connect, like `10.0.0.1:7070` with `[tls]`, or `unix:/path`. Empty: "
        "`agents.sock` in the coordinator's folder."},
       {"metrics_without_token", &c.metrics_without_token,
        "`true`: clients read `/metrics` without a token ([metrics](../metrics.md))."},
       {"log_level",
        &c.log_level,
        "The least severe lines that are logged.",
        {.words = {"trace", "debug", "info", "warn", "error", "off"}}},
       {"log_file", &c.log_file, "Where the log goes. Empty: standard error."},
       {"fence_command", &c.fence_command,
        "Program that `node rm --force` runs with a lost node's name; exit status 0 (within 120 s) proves "
        "that nothing runs there. Empty: only the operator's `--fenced` confirms that."},
       {"tls.ca", &c.tls.ca,
        "The certificate of the cluster's authority: the absolute path of a PEM file. With `[tls]`, all TCP "
        "connections use TLS, and both sides are verified ([operations](../operations.md#certificates)).",
        kRequired},
       {"tls.certificate", &c.tls.certificate,
        "The coordinator's certificate: the absolute path of a PEM file.", kRequired},
       {"tls.key", &c.tls.key,
        "The certificate's key: the absolute path of a PEM file with mode 0600 or 0400.", kRequired},
       {"certificate_authority", &c.certificate_authority,
        "The absolute path of a folder with `ca.pem` and `ca.key`: nodes join with tokens, and certificates "
        "are renewed. Empty: both are disabled."},
       {"certificate_check_ms", &c.certificate_check_ms,
        "Interval at which the expiry of certificates is checked.", kTime}});
}

void add_moves(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"lease_term_ms", &c.lease_term_ms,
        "How long a node may decide about a switch while the coordinator is unreachable.", kTime},
       {"handover_timeout_ms", &c.handover_timeout_ms, "How long a switch waits for a node's answer.", kTime},
       {"agent_idle_timeout_ms", &c.agent_idle_timeout_ms,
        "An agent that sends nothing for this long counts as unreachable.", kTime},
       {"placement_margin_bytes",
        &c.placement_margin_bytes,
        "Memory that stays free at a target in addition to a job's state.",
        {.max = kMaxMarginBytes}},
       {"evacuation_live_deadline_ms", &c.evacuation_live_deadline_ms,
        "How long an urgent evacuation may try live moves; then the newest image is restored.", kTime},
       {"evacuation_parallel", &c.evacuation_parallel, "Number of urgent evacuations at a time.", kCount},
       {"evacuation_breaker_count", &c.evacuation_breaker_count,
        "How many evacuations within `evacuation_breaker_window_ms` stop automatic moves.", kCount},
       {"evacuation_breaker_window_ms", &c.evacuation_breaker_window_ms,
        "The time window of `evacuation_breaker_count`.", kTime},
       {"evacuation_attempts_per_job", &c.evacuation_attempts_per_job,
        "Number of attempts for one job within an hour.", kCount},
       {"image_timeout_ms", &c.image_timeout_ms,
        "A suspend, restore or resume that has not ended after this time is cancelled; a suspended job then "
        "continues to run.",
        kTime},
       {"checkpoint_store_timeout_ms", &c.checkpoint_store_timeout_ms,
        "How long a suspend waits for a checkpoint store whose node does not answer.", kTime}});
}

void add_history(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"ended_images_max_age_ms", &c.ended_images_max_age_ms,
        "How long after a job has ended its images are removed (event `images-collected`).", kAge},
       {"ended_images_kept", &c.ended_images_kept,
        "Maximum number of images of ended jobs; the images of the job that ended first are removed first.",
        kKept},
       {"ended_jobs_kept", &c.ended_jobs_kept,
        "Maximum number of ended jobs in the store; the images of removed jobs are kept.", kKept},
       {"closed_migrations_kept", &c.closed_migrations_kept,
        "Maximum number of closed migrations in the store.", kKept},
       {"events_kept", &c.events_kept, "Maximum number of events in the store.", kKept},
       {"findings_kept", &c.findings_kept, "Maximum number of agents' findings about GPUs in the store.",
        kKept},
       {"ended_evacuations_kept", &c.ended_evacuations_kept,
        "Maximum number of ended evacuations in the store.", kKept},
       {"ended_drains_kept", &c.ended_drains_kept, "Maximum number of ended drains in the store.", kKept},
       {"kept_output_mib", &c.kept_output_mib,
        "Space for copies of the last part of job logs (1 MiB for each instance), which `logs` shows while a "
        "node is unreachable; 0: none.",
        kKept},
       {"output_copy_interval_ms", &c.output_copy_interval_ms,
        "Interval at which the last part of a growing job log is copied.", kTime},
       {"history_kept_days", &c.history_kept_days,
        "Days after which ended jobs, closed migrations, events, findings, evacuations and drains are "
        "removed regardless of their numbers; 0: never.",
        kKept}});
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
