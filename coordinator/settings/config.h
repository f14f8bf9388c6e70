// SPDX-License-Identifier: Apache-2.0
// The settings of the coordinator: defaults, a TOML file (keys in docs/api.md), and the command line's
// --home. Pure except for reading the file. Errors: kInvalidArgument naming the key; unknown keys are
// refused.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::coordinator {

struct Config {
  std::string home;           // the coordinator's home folder; an absolute path once loaded
  std::string api_address;    // the TCP address of the API; empty: only the Unix socket
  std::string agent_address;  // the address where agents connect; empty: agents.sock in the coordinator's
                              // folder
  tls::CertFiles tls;         // the coordinator's certificate files; empty: neither TLS nor TCP
  std::string
      certificate_authority;  // a folder with ca.pem and ca.key, used to renew certificates; empty: no
                              // renewals
  std::int64_t certificate_check_ms = 600'000;  // the interval at which the expiry of certificates is checked
  bool metrics_without_token = false;
  std::string log_level = "info";
  std::string log_file;       // the log file; empty: standard error
  std::string fence_command;  // the path of the fence program; empty: --fenced relies on the operator's
                              // statement alone (fence_command.h)
  std::int64_t lease_term_ms = 10000;
  std::int64_t handover_timeout_ms = 10000;
  std::int64_t agent_idle_timeout_ms = 10000;
  std::int64_t placement_margin_bytes = std::int64_t{64} << 20;
  std::int64_t evacuation_live_deadline_ms = 30000;
  std::int64_t evacuation_parallel = 4;
  std::int64_t evacuation_breaker_count = 20;
  std::int64_t evacuation_breaker_window_ms = 600000;
  std::int64_t evacuation_attempts_per_job = 3;        // the maximum number of evacuation attempts for a job
                                                       // within an hour
  std::int64_t image_timeout_ms = 3'600'000;           // the time limit of a suspend, restore or resume
  std::int64_t checkpoint_store_timeout_ms = 60'000;   // the longest time that a suspend waits for the
                                                       // checkpoint store's node
  std::int64_t ended_images_max_age_ms = 604'800'000;  // images are removed this long after their job's end
  std::int64_t ended_images_kept = 1000;  // the maximum number of images of ended jobs; those of the earliest
                                          // ended jobs are removed first
  std::int64_t ended_jobs_kept = 1000;    // the maximum number of ended jobs; older jobs are removed, but
                                          // their images are kept
  std::int64_t closed_migrations_kept = 2000;
  std::int64_t events_kept = 10000;
  std::int64_t findings_kept = 5000;
  std::int64_t ended_evacuations_kept = 1000;
  std::int64_t ended_drains_kept = 200;
  std::int64_t kept_output_mib = 1024;  // the limit for copies of the ends of jobs' logs; 0: no copies
  std::int64_t output_copy_interval_ms = 10'000;
  std::int64_t history_kept_days = 30;  // the longest time in days for which entries with a limit *_kept are
                                        // kept; 0: only their number is limited

  bool tagged_ids = true;  // not a key of the file; tests that name ids use ids without tags

  [[nodiscard]] std::string folder() const { return home + "/coordinator"; }
};

// Returns GPUMIGRATE_HOME, or ~/.local/share/gpumigrate.
[[nodiscard]] std::string default_home();
// Parses the text of a configuration file. Errors name `source`. An absent key has its default value, and an
// absent `home` is empty.
Result<Config> parse_config(const std::string& text, const std::string& source);
// Loads the settings. An empty argument means the default. `home` of the command line takes precedence over
// that of the file.
Result<Config> load_config(const std::string& config_path, const std::string& home);

}  // namespace ckpt::coordinator
